"""Beam job 1: references to stored images in spool blocks, with the facts of each image."""
