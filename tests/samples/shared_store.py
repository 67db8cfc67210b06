"""What a spawned process does with a cache in memory that it got."""

from __future__ import annotations

from training.reading.cache.stores import MemoryStore


def fill_second(store: MemoryStore) -> None:
    """Check the first image of two, and add the second."""
    first = store.get(0)
    assert first is not None
    assert bytes(first.image) == b"ab"
    store.put(1, b"abc", 3)
