"""Copies of a version for other libraries: a folder of TFRecord files and its descriptions."""
