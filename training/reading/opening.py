"""Open the records of a split for an order: by block, and through a cache, as the settings say."""

from __future__ import annotations

from shardmill.training.config.reading import ReadingSettings
from shardmill.training.order import Order
from shardmill.training.reading.blocks.stored import by_block
from shardmill.training.reading.cache import CacheMemory, CachePlan, open_cached
from shardmill.training.reading.records.record_reader import RecordReader


def open_for_order(
    source: RecordReader, order: Order, reading: ReadingSettings, memory: CacheMemory | None = None
) -> tuple[RecordReader, CachePlan]:
    """Open the records for an order, with the cache of ``reading.cache``.

    Args:
        source: reads the records from the shards.
        order: the order of the run.
        reading: the settings of reading.
        memory: caches in memory to use again; by default this reader has one of its own.

    Returns:
        The reader, and the plan of its cache.

    Raises:
        ConfigError: the windows of an order by block, or a cache that must fit, need more memory.
        StorageError: there is no room on the disk for a cache that must fit.
    """
    budget = reading.ram_budget_bytes
    if reading.cache != "disk":
        return open_cached(by_block(source, order, budget), reading, memory)
    reader, plan = open_cached(source, reading)
    return by_block(reader, order, budget), plan
