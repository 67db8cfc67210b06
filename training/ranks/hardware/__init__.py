"""What the devices of a process are called, and how much of them is in use."""
