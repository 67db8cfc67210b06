"""Decode every format except JPEG, JPEG 2000 and TIFF, through Pillow and libheif."""
