"""Ranks on the machines of a Ray cluster: an actor for each starts it, watches it, and ends it."""
