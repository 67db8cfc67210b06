"""Read the records of a shard from front to back, as a ``tf.data.Dataset``.

Two sources give the same elements, (ordinal int64, image string, channels int32), each record checked against
the split's table before it is used:

* ``TFRecordSource``: TensorFlow's own ``TFRecordDataset``, for files of this machine. TensorFlow takes a file
  that ends between two records for a whole one, so a mark follows the last record; a mark in place of a
  record is an error.
* ``RunSource``: runs of neighbouring records through a ``RecordReader``: one ranged read each from any
  storage, or from a cache.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from shardmill.infra.errors import CorruptDataError, ShardmillError
from shardmill.infra.format.records import Container
from shardmill.training.reading import RecordReader
from shardmill.training.reading.records.split_table import first_ordinals, record_runs

_BLOCK_RECORDS = 64
_READ_AHEAD_BYTES = 1 << 20
_END = b""  # no serialized example is empty

_FEATURES = {
    "id": tf.io.FixedLenFeature([], tf.string, ""),
    "image": tf.io.FixedLenFeature([], tf.string, ""),
    "label": tf.io.FixedLenFeature([], tf.int64, -1),
    "height": tf.io.FixedLenFeature([], tf.int64, -1),
    "width": tf.io.FixedLenFeature([], tf.int64, -1),
    "channels": tf.io.FixedLenFeature([], tf.int64, -1),
}

OnFailure = Callable[[ShardmillError], None]


class RecordSource(Protocol):
    """Gives the records of a shard."""

    def records(self, shard: Any) -> Any:
        """Return the records of a shard (int64 scalar tensor) in stored order: (ordinal, image, channels)."""


class TFRecordSource:
    """Reads shards of this machine through ``TFRecordDataset``."""

    def __init__(
        self, reader: RecordReader, files: list[Path], container: Container, on_failure: OnFailure
    ) -> None:
        """Make a source of local shards.

        Args:
            reader: the exact reader of the split, which names damaged records.
            files: the files of the shards, in the order of the reader's table.
            container: how the shards hold their records.
            on_failure: called with an error of this project before TensorFlow hides it.
        """
        self._reader = reader
        self._files = [str(file) for file in files]
        self._first = first_ordinals(reader.table)
        self._compression = "GZIP" if container == "gzip" else ""
        self._on_failure = on_failure

    def records(self, shard: Any) -> Any:
        """See ``RecordSource``."""
        first = tf.constant(self._first)
        ordinals = tf.data.Dataset.range(first[shard], first[shard + 1])
        file = tf.constant(self._files)[shard]
        serialized = tf.data.TFRecordDataset(file, self._compression, buffer_size=_READ_AHEAD_BYTES)
        serialized = serialized.concatenate(tf.data.Dataset.from_tensors(_END))
        blocks = tf.data.Dataset.zip(ordinals, serialized).batch(_BLOCK_RECORDS)
        return blocks.map(self._parsed).unbatch()

    def _parsed(self, ordinals: Any, serialized: Any) -> tuple[Any, Any, Any]:
        parsed = tf.io.parse_example(serialized, _FEATURES)
        read = [parsed[name] for name in ("id", "label", "height", "width")]
        checked = tf.numpy_function(self._checked, [ordinals, *read], tf.int64, stateful=False)
        checked.set_shape([None])
        return checked, parsed["image"], tf.cast(parsed["channels"], tf.int32)

    def _checked(
        self, ordinals: npt.NDArray[np.int64], ids: npt.NDArray[Any], *columns: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        table = self._reader.table
        # The end mark has no id.
        expected = table.ids(ordinals)
        same = np.array([name == wanted.encode() for name, wanted in zip(ids, expected, strict=True)])
        for found, wanted in zip(columns, (table.label, table.height, table.width), strict=True):
            same &= found == wanted[ordinals]
        if not same.all():
            error = self._error(int(ordinals[np.argmin(same)]))
            self._on_failure(error)
            raise error
        return ordinals

    def _error(self, ordinal: int) -> CorruptDataError:
        """Return the error that the exact reader raises for a record."""
        try:
            self._reader.read(ordinal)
        except CorruptDataError as error:
            return error
        return self._reader.split.named(
            ordinal,
            CorruptDataError("reading the shard from its start gives another record at this position"),
        )


class RunSource:
    """Reads shards anywhere, or a cache, through a ``RecordReader``."""

    def __init__(self, reader: RecordReader, on_failure: OnFailure, run_bytes: int) -> None:
        """Make a source of any shards.

        Args:
            reader: the records of the split.
            on_failure: called with an error of this project before TensorFlow hides it.
            run_bytes: about the size of one read.
        """
        self._reader = reader
        self._on_failure = on_failure
        self._begins = record_runs(reader.table, run_bytes)
        # int64 [shards + 1]: the first run of each shard, and the end of the last.
        self._runs_of = np.searchsorted(self._begins, first_ordinals(reader.table)).astype(np.int64)

    def records(self, shard: Any) -> Any:
        """See ``RecordSource``."""
        runs_of = tf.constant(self._runs_of)
        numbers = tf.data.Dataset.range(runs_of[shard], runs_of[shard + 1])
        # Request the next run while one is used: over a network a request takes most of the time.
        return numbers.map(self._run, num_parallel_calls=2, deterministic=True).unbatch()

    def _run(self, run: Any) -> tuple[Any, Any, Any]:
        read = tf.numpy_function(self._read, [run], (tf.int64, tf.string, tf.int32), stateful=False)
        for column in read:
            column.set_shape([None])
        return tuple(read)

    def _read(self, run: int) -> tuple[npt.NDArray[Any], ...]:
        first, stop = int(self._begins[run]), int(self._begins[run + 1])
        try:
            read = self._reader.read_run(first, stop)
        except ShardmillError as error:
            self._on_failure(error)
            raise
        images = np.empty(len(read), object)
        images[:] = [bytes(stored.image) for stored in read]
        channels = np.array([stored.shape[2] for stored in read], np.int32)
        return np.arange(first, stop, dtype=np.int64), images, channels
