"""The commands that read and maintain published datasets."""
