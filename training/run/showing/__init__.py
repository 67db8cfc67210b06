"""Pictures and a profile of some steps for TensorBoard."""
