"""The masks of listed images: the file that is the mask of each, and what becomes of mask files."""
