"""Boxes of objects: which cells of a detector learn which object, losses, and decoding. TensorFlow.

Boxes are rows of top, left, bottom and right edge, relative to the image, 0 to 1.
"""
