"""Decode every format except JPEG, through Pillow and libheif."""
