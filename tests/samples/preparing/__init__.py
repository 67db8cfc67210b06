"""Preparing small sources, by the command and in process."""
