"""Correct the history of Prefect after processes were killed."""
