"""Sources of every kind, sound, untidy and hostile."""
