"""Models in Keras: families, ``keras.applications``, detectors."""
