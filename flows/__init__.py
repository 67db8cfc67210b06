"""Prefect flows, their deployments, and the command line."""
