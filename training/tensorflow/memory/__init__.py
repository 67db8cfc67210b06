"""Which batch fits into the memory of a device, with TensorFlow."""
