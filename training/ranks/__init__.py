"""The devices of one process, and the strategy that trains on them."""
