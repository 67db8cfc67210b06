"""The exported forms of a Keras model: a SavedModel, ONNX, LiteRT."""

from shardmill.training.tensorflow.export.saved_model import open_predictor

__all__ = ["open_predictor"]
