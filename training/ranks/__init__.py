"""Ranks and devices: the strategy of one process, and the parent that starts, watches and restarts ranks."""
