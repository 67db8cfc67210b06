"""The exported forms of a PyTorch model: a program, ONNX."""

from shardmill.training.torch.export.program import open_predictor

__all__ = ["open_predictor"]
