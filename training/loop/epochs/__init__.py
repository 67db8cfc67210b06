"""The walk through the epochs of a run, with any framework: steps, reports, validation, the best model."""
