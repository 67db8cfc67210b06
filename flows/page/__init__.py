"""The platform's own web page: datasets, versions, training runs, what happens now. It changes nothing."""
