"""What TensorBoard shows of a run besides its figures: pictures, and a profile of some steps."""
