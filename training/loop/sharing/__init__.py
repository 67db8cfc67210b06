"""Which rows of each global batch a rank takes, and a record of how evenly the ranks work."""
