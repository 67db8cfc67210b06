"""Decode every format except JPEG and TIFF, through Pillow and libheif."""
