"""Optimizers, their updates, averages of weights, pruning and precision, with Keras."""
