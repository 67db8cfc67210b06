"""The commands that start, stop and schedule on the Prefect server of this machine."""
