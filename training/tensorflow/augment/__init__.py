"""Augmentations of whole batches as TensorFlow operations."""
