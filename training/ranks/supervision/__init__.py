"""The parent of the ranks: starts, watches, ends and restarts them."""
