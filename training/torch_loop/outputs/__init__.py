"""Outputs of a training with PyTorch that differ from those with TensorFlow: curves and exported model."""
