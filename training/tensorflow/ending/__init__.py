"""The end of a run with TensorFlow: its export and result."""
