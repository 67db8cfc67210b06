"""Evaluate the model of a run on its splits, during training and at its end."""
