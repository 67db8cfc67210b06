"""Batches as tf.data pipelines: exact (indexed) or streaming."""
