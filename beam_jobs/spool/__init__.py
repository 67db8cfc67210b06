"""Unfinished work in the dataset's spool folder: claims, and the codec builds it belongs to."""
