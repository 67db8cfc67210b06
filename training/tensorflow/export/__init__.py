"""Trained models as SavedModel, ONNX and LiteRT."""
