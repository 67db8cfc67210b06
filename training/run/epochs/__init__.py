"""The loop over the epochs of a run, with any framework: steps, reports, validation, the best model."""
