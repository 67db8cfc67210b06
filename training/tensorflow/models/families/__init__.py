"""Model families of this project: one file per family, found by its name."""
