"""Review of a dataset: what was found in it, the queue of it, and decisions as files."""
