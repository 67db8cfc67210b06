"""Records of several data sets that look the same as one of another, by the looks in their indexes.

Near-duplicates within a data set are found when it is prepared. Here only groups across data sets count.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.infra.format.contract import LOOK_BYTES, LOOK_SIDE, Shard
from shardmill.infra.readable import counted
from shardmill.infra.similarity import LookRules
from shardmill.infra.similarity.connected import connected_views

if TYPE_CHECKING:
    from shardmill.infra.dataset.version import DatasetVersion

NEAR_DUPLICATES_FILE = "near-duplicates.parquet"  # in the folder of a run on several data sets
_TRAIN = "train"
_Sets = Sequence[tuple["DatasetVersion", Sequence[str]]]
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


def find_between(sets: _Sets) -> pa.Table:
    """Find the records that look the same as a record of another data set.

    Args:
        sets: each data set, and the splits of it that are read.

    Returns:
        BETWEEN_SCHEMA, sorted by group and data set; of images without structure only exact copies.
    """
    records = _Records.read(sets)
    group, number = records.groups(), records.data_set
    is_train = records.is_train
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
    splits, ids, uris = records.named(sets, order)
    columns = [
        pa.array(named.astype(np.int64)),
        pa.array(number[order].astype(np.int64)),
        splits,
        ids,
        uris,
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


@dataclass(frozen=True, slots=True)
class _Records:
    """What is compared of all records: some 25 bytes each in memory, and their looks in a temporary file.

    Attributes:
        ids: uint64 [N].
        data_set: int32 [N].
        is_train: bool [N].
        owners: int64 [V], the record that each view of a look is of.
        views: int8 [V, 14, 14].
    """

    ids: npt.NDArray[np.uint64]
    data_set: npt.NDArray[np.int32]
    is_train: npt.NDArray[np.bool_]
    owners: npt.NDArray[np.int64]
    views: npt.NDArray[np.int8]

    @classmethod
    def read(cls, sets: _Sets) -> _Records:
        """Read the indexes, one at a time."""
        ids, numbers, trains, owners, stop = [], [], [], [], 0
        with tempfile.TemporaryFile() as file:
            for number, version, shard in _shards(sets):
                rows = version.rows(shard, ("id", "look"))
                start, stop = stop, stop + rows.num_rows
                digits = bytes.fromhex("".join(rows["id"].to_pylist()))
                ids.append(np.frombuffer(digits, ">u8").astype(np.uint64))
                numbers.append(np.full(rows.num_rows, number, np.int32))
                trains.append(np.full(rows.num_rows, shard.split == _TRAIN))
                if "look" in rows.column_names:
                    looks = rows["look"].to_pylist()
                    file.writelines(look for look in looks if look)
                    lengths = np.array([len(look or b"") for look in looks], np.int64) // LOOK_BYTES
                    owners.append(np.repeat(np.arange(start, stop), lengths))
            file.flush()
            found = np.concatenate([np.zeros(0, np.int64), *owners])
            shape = (len(found), LOOK_SIDE, LOOK_SIDE)
            views = np.memmap(file, np.int8, "r", shape=shape) if len(found) else np.empty(shape, np.int8)
        return cls(
            np.concatenate([np.zeros(0, np.uint64), *ids]),
            np.concatenate([np.zeros(0, np.int32), *numbers]),
            np.concatenate([np.zeros(0, np.bool_), *trains]),
            found,
            views,
        )

    def groups(self) -> npt.NDArray[np.int64]:
        """Return the number of the group of each record: those of one id or of connected looks."""
        group = np.unique(self.ids, return_inverse=True)[1].astype(np.int64) + len(self.ids)
        known, owners = np.unique(self.owners, return_inverse=True)
        if len(known):
            group[known] = connected_views(self.views, owners, len(known), LookRules())
        return np.unique(group, return_inverse=True)[1].astype(np.int64)

    def named(self, sets: _Sets, wanted: npt.NDArray[np.int64]) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Return split, id and URI of some records, in the sequence of ``wanted``."""
        by_place = np.argsort(wanted, kind="stable")
        splits, ids, uris, stop = [], [], [], 0
        for _, version, shard in _shards(sets):
            num_rows = version.rows(shard, ("id",)).num_rows
            start, stop = stop, stop + num_rows
            first, last = np.searchsorted(wanted, (start, stop), sorter=by_place)
            if first < last:
                rows = version.rows(shard, ("id", "source_uri")).take(wanted[by_place[first:last]] - start)
                ids += rows["id"].to_pylist()
                uris += rows["source_uri"].to_pylist()
                splits += [shard.split] * int(last - first)
        place = np.empty(len(wanted), np.int64)
        place[by_place] = np.arange(len(wanted))
        columns = (pa.array(values, pa.string()) for values in (splits, ids, uris))
        split, record_id, uri = (column.take(pa.array(place)) for column in columns)
        return split, record_id, uri


def _shards(sets: _Sets) -> Iterator[tuple[int, DatasetVersion, Shard]]:
    for number, (version, splits) in enumerate(sets):
        for split in splits:
            for shard in version.shards(split):
                yield number, version, shard


def _extremes(
    group: npt.NDArray[np.int64], number: npt.NDArray[np.integer], count: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the least and the largest number of each group: int64 [count]; the largest int64, -1 if none."""
    least, most = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(least, group, number)
    np.maximum.at(most, group, number)
    return least, most
