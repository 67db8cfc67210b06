"""Training runs: their names, settled values, length and results, and the files of a job."""
