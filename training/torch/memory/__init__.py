"""Measure memory with PyTorch, and find the largest batch that fits into it."""
