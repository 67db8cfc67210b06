"""Functions that a ``tf.data`` graph of the indexed pipeline calls, and decoding by TensorFlow."""
