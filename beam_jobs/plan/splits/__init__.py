"""Which record goes to which split, and groups that the splits divide all the same (leaks)."""
