"""Images kept in memory or on disk between epochs: ``reading.cache``."""

from __future__ import annotations

from shardmill.training.reading.cache.preload import PreloadedRecords
from shardmill.training.reading.cache.reader import (
    CachedReader,
    CacheMemory,
    CachePlan,
    describe,
    open_cached,
)

__all__ = ["CacheMemory", "CachePlan", "CachedReader", "PreloadedRecords", "describe", "open_cached"]
