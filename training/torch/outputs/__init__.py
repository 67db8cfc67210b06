"""The exported model of a training with PyTorch."""
