"""Views: the records of a version that a query selects, without copying them."""
