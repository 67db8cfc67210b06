"""Model families of this project: one file a family, found by its name."""
