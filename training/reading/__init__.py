"""Read stored records and turn them into batches, without a framework.

``SplitTable`` has the place of each record of a split, a ``RecordReader`` reads them, and a ``BatchMaker``
turns the steps of an order into batches.
"""

from __future__ import annotations

from training.reading.batches.maker import Batch, BatchMaker
from training.reading.record_reader import RecordReader
from training.reading.shard_reader import ShardReader, open_records
from training.reading.split_records import EncodedImage, SplitRecords
from training.reading.split_table import SplitTable, load_table

__all__ = [
    "Batch",
    "BatchMaker",
    "EncodedImage",
    "RecordReader",
    "ShardReader",
    "SplitRecords",
    "SplitTable",
    "load_table",
    "open_records",
]
