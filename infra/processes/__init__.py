"""Processes: children that report and can be cancelled, and how a command runs and ends."""
