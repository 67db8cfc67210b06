"""The parent of the ranks of one machine: starts, watches, ends and restarts them. No TensorFlow."""
