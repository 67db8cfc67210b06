"""The commands that run jobs, each in a process of its own, and those about training runs."""
