"""Evaluation of a Keras model on a split."""
