"""Read the structure of image files without a decoder: boxes, chunks, strips and EXIF."""
