"""What a Keras model learns: losses, metrics and predictions of each kind of label."""
