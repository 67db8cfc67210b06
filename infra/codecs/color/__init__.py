"""Convert the colours of image files to sRGB."""
