"""Read stored records and turn them into batches, without a framework.

``SplitTable`` has the place of each record of a split, a ``RecordReader`` reads them, and a ``BatchMaker``
turns the steps of an order into batches.
"""

from __future__ import annotations

from shardmill.training.reading.batch import Batch
from shardmill.training.reading.batch_maker import BatchMaker
from shardmill.training.reading.records.record_reader import RecordReader
from shardmill.training.reading.records.split_records import EncodedImage, SplitRecords
from shardmill.training.reading.records.split_table import SplitTable, load_table
from shardmill.training.reading.shard_reader import ShardReader, open_records

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
