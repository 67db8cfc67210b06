"""Keep the steps of a run within the memory of its devices."""
