"""Batches as ``tf.data`` pipelines."""
