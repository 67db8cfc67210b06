"""The commands for a Prefect server of one's own: its processes, and the deployments on it."""
