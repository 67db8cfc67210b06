"""Models of this project for PyTorch, one file each, named by ``model.name``."""
