"""The end of a run: export its model, and state its result."""
