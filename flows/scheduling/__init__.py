"""How runs that start by themselves behave: coalescing, backing off from failing sources, inboxes."""
