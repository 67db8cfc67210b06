"""The names of a process's devices, and their use."""
