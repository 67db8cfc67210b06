"""Records of several data sets that look the same as one of another, by the looks in their indexes.

Near-duplicates within a data set are found when it is prepared. Here only groups across data sets count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.infra.readable import counted
from shardmill.infra.similarity import LookRules
from shardmill.infra.similarity.connected import connected_looks

if TYPE_CHECKING:
    from shardmill.infra.dataset.version import DatasetVersion

NEAR_DUPLICATES_FILE = "near-duplicates.parquet"  # in the folder of a run on several data sets
_COLUMNS = ("id", "source_uri", "look")
_TRAIN = "train"
BETWEEN_SCHEMA = pa.schema(
    [
        ("group", pa.int64()),  # counted from 0
        ("data_set", pa.int64()),  # its number, from 0
        ("split", pa.string()),
        ("record_id", pa.string()),
        ("uri", pa.string()),  # relative to the source of the data set
        # Whether it is of train, and looks the same as a record of another data set that is not of train, or
        # as one of train of an earlier data set.
        ("is_superfluous", pa.bool_()),
    ]
)


def find_between(sets: Sequence[tuple[DatasetVersion, Sequence[str]]]) -> pa.Table:
    """Find the records that look the same as a record of another data set.

    Args:
        sets: each data set, and the splits of it that are read.

    Returns:
        BETWEEN_SCHEMA, sorted by group and data set; of images without structure only exact copies.
    """
    records = _records(sets)
    group = _groups(records)
    number, is_train = records["data_set"].to_numpy(), np.asarray(records["split"].to_pylist()) == _TRAIN
    count = int(group.max(initial=-1)) + 1
    # Of each group the smallest and largest data set of all records, of those not of train, and of train.
    least, most = _extremes(group, number, count)
    is_between = (least < most)[group]
    tested_least, tested_most = _extremes(group[~is_train], number[~is_train], count)
    first_train, _ = _extremes(group[is_train], number[is_train], count)
    like_tested = (tested_most[group] >= 0) & (
        (tested_least[group] != number) | (tested_most[group] != number)
    )
    superfluous = is_train & (like_tested | (first_train[group] < number))
    order = np.flatnonzero(is_between)
    order = order[np.lexsort((number[order], group[order]))]
    _, named = np.unique(group[order], return_inverse=True)
    taken = records.take(pa.array(order))
    columns = [
        pa.array(named.astype(np.int64)),
        taken["data_set"],
        taken["split"],
        taken["id"],
        taken["source_uri"],
        pa.array(superfluous[order]),
    ]
    return pa.table(columns, schema=BETWEEN_SCHEMA)


def between_in_words(found: pa.Table) -> str | None:
    """Say how many records look the same as one of another data set; None: none does."""
    if not found.num_rows:
        return None
    train = int(np.count_nonzero(found["is_superfluous"].to_numpy()))
    groups = counted(found["group"][-1].as_py() + 1, "group")
    return (
        f"{counted(found.num_rows, 'record')} in {groups} look like one of another data set; {train:,} of "
        "them are of train, and show what another data set tests or has in train already"
    )


def _records(sets: Sequence[tuple[DatasetVersion, Sequence[str]]]) -> pa.Table:
    fields = [("data_set", pa.int64()), ("split", pa.string()), *((name, pa.string()) for name in _COLUMNS)]
    schema = pa.schema(fields).set(4, pa.field("look", pa.binary()))
    parts = [schema.empty_table()]
    for number, (version, splits) in enumerate(sets):
        for shard in (shard for split in splits for shard in version.shards(split)):
            rows = version.rows(shard, _COLUMNS)
            own: dict[str, Any] = {
                "data_set": pa.array(np.full(rows.num_rows, number)),
                "split": pa.array([shard.split] * rows.num_rows, pa.string()),
            }
            for field in schema:
                if field.name in rows.column_names:
                    own[field.name] = rows[field.name].cast(field.type)
                own.setdefault(field.name, pa.nulls(rows.num_rows, field.type))
            parts.append(pa.table([own[name] for name in schema.names], schema=schema))
    return pa.concat_tables(parts)


def _groups(records: pa.Table) -> npt.NDArray[np.int64]:
    """Return the number of the group of each record: those of one id or of connected looks."""
    looks = records["look"].combine_chunks()
    looks = pa.concat_arrays(looks.chunks) if isinstance(looks, pa.ChunkedArray) else looks
    _, copies = np.unique(np.asarray(records["id"].to_pylist(), "S16"), return_inverse=True)
    known = looks.is_valid().to_numpy(zero_copy_only=False)
    group = copies.astype(np.int64) + records.num_rows
    if known.any():
        group[known] = connected_looks(looks.drop_null(), LookRules())[0]
    return np.unique(group, return_inverse=True)[1].astype(np.int64)


def _extremes(
    group: npt.NDArray[np.int64], number: npt.NDArray[np.int64], count: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the least and the largest number of each group: int64 [count]; the largest int64, -1 if none."""
    least, most = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(least, group, number)
    np.maximum.at(most, group, number)
    return least, most
