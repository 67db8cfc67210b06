"""The structure of image files, read without a decoder: boxes, chunks, directories, and metadata in them."""
