"""A spawned process that reads a cache in memory of its parent."""

from __future__ import annotations

from shardmill.training.reading.cache.stores import MemoryStore


def fill_second(store: MemoryStore) -> None:
    """Check the first image of two, and add the second."""
    first = store.get(0)
    assert first is not None
    assert bytes(first.image) == b"ab"
    store.put(1, b"abc", 3)
