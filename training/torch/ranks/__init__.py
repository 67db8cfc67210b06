"""The ranks of a training with PyTorch: how many there are, and how they talk to each other."""
