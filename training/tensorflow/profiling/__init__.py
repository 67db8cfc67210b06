"""How fast a model trains with each batch size, with TensorFlow."""
