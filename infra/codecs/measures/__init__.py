"""Measure a decoded image: channel statistics and the perceptual hash."""
