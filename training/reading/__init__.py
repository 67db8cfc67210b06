"""Stored records to batches, without a framework: tables of where records lie, and what fetches them."""

from __future__ import annotations

from training.reading.batches import Batch, BatchMaker
from training.reading.records import RecordReader
from training.reading.table import SplitTable, load_table

__all__ = ["Batch", "BatchMaker", "RecordReader", "SplitTable", "load_table"]
