"""Images kept in memory or on disk between epochs: ``reading.cache``."""

from __future__ import annotations

from training.reading.cache.plan import CachePlan
from training.reading.cache.reader import CachedReader, describe, open_cached

__all__ = ["CachePlan", "CachedReader", "describe", "open_cached"]
