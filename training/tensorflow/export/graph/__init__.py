"""What the exported graph does to image files: decode, prepare and show them as evaluation sees records."""
