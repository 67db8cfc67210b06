"""Stored records: their places in the shards, reading them one by one or in runs, and damage."""
