"""Reading with JAX: batches as arrays on its devices."""
