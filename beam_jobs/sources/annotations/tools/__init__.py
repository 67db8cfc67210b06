"""What the kinds of labelling tools share: objects as such tools draw them, and recognising their files."""
