"""Automatic runs: coalescing, backing off from failing sources, inboxes."""
