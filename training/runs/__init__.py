"""Training runs: name, kept settings, length and result; and the start of supervised ranks."""
