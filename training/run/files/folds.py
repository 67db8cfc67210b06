"""The records that a run trains on, if it leaves out a fold of the train split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError
from shardmill.training.arrays import Ints
from shardmill.training.config import DataSettings
from shardmill.training.order import FoldedRecords, Order, SubsetOrder, fold_numbers, order_from_settings
from shardmill.training.order.from_settings import LabelsOnly
from shardmill.training.reading import RecordReader


@dataclass(frozen=True, slots=True)
class TrainRecords:
    """The records of the train split as a run uses them.

    Attributes:
        order: the order of the records that it learns from.
        left_out: the ordinals of the M records that it leaves out, int64 [M]; None: it uses all records.
    """

    order: Order
    left_out: Ints | None


def divide_train_split(data: DataSettings, reader: RecordReader, classes: list[str]) -> TrainRecords:
    """Return the records that a run learns from in their order, and those of the fold that it leaves out.

    Args:
        data: the settings.
        reader: the records of the train split.
        classes: the name of each label.

    Raises:
        DataError: there are no records to train on.
        ConfigError: the fold is empty, or the settings do not fit the data.
    """
    table, version = reader.table, reader.split.version
    if data.left_out_fold is None or data.folds is None:
        return TrainRecords(order_from_settings(data, table, classes), None)
    if table.set_sizes:
        raise ConfigError(
            f"data.left_out_fold divides one data set, and {version.ref} are several: their groups may have "
            "the same names",
            "search label errors in each by itself",
        )
    facts = FoldedRecords(table.id, table.label, _groups(reader.split.version, table.split))
    is_left_out = fold_numbers(facts, data.folds, data.seed) == data.left_out_fold - 1
    if not is_left_out.any():
        raise ConfigError(
            f"fold {data.left_out_fold} of {data.folds} has no records: the train split has too few",
            "set data.folds to a smaller number",
        )
    kept = np.flatnonzero(~is_left_out)
    undivided = data.model_copy(update={"folds": None, "left_out_fold": None})
    sets = None if table.label_sets is None else table.label_sets.chosen(kept)
    order = order_from_settings(undivided, LabelsOnly(table.label[kept], sets), classes)
    return TrainRecords(SubsetOrder(order, kept), np.flatnonzero(is_left_out))


def _groups(version: DatasetVersion, split: str) -> Ints:
    """Return the number of each record's group, -1 for none: int64 [N]."""
    parts = [version.rows(shard, ["group"])["group"] for shard in version.shards(split)]
    column: Any = pa.chunked_array([part for parted in parts for part in parted.chunks], pa.string())
    codes = column.combine_chunks().dictionary_encode().indices
    return np.asarray(pc.fill_null(codes, -1).to_numpy(zero_copy_only=False), np.int64)
