"""A plugin of each kind for Shardmill."""
