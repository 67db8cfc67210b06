"""Classes: their names, as folders, numbers and settings give them."""
