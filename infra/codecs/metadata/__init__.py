"""The metadata of image files: what they say of themselves, and how it is removed."""
