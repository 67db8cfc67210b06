"""Published datasets: the catalog of versions, and everything that is done to a whole version."""
