"""Training runs: their names, settled values, length and results; and the start of supervised ranks."""
