"""Wrappers of Prefect's server (ASGI) that change what it answers to people."""
