"""Checkpoints of a run: their file, written in the background, shared by all ranks."""
