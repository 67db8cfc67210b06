"""Shares of a batch for ranks of unequal speed, with TensorFlow."""
