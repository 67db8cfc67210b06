"""Evaluate a PyTorch model on a split: the one that is being trained, and that of a finished run."""
