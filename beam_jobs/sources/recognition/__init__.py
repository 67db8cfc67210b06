"""Recognition: which kind of source a folder is, and what each kind is called and can be set to."""
