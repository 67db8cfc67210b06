"""The rows of each global batch that a rank takes, and a record of how evenly the ranks work."""
