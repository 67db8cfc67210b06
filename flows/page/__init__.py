"""The platform's own web page: data sets, versions, training runs, what happens now. It changes nothing."""
