"""The strategy of TensorFlow over devices and ranks."""
