"""The streaming tf.data pipeline: shards are read from front to back and shuffled approximately."""
