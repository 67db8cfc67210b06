"""Draws of each class in an epoch, and weights of its examples in the loss."""
