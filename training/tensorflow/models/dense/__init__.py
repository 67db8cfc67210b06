"""Models that give values for places of an image: a backbone, and a head for each kind of values."""
