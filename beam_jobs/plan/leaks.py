"""Leaks: groups that given or previous splits divide, and their treatment by ``groups.leakage``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import Leakage
from shardmill.beam_jobs.plan.columns import Codes, Rows
from shardmill.beam_jobs.plan.similarity.groups import Groups
from shardmill.beam_jobs.plan.splits import TRAIN
from shardmill.beam_jobs.tables.columns import one_chunk
from shardmill.infra.errors import LeakError
from shardmill.infra.format.contract import SPLITS, Leaks

Int64 = npt.NDArray[np.int64]

_EXAMPLES = 3


@dataclass(frozen=True)
class GroupedRecords:
    """Records, their groups of both kinds, and their splits.

    Attributes:
        near: groups of records that look the same.
        keyed: groups by key.
        keys: string, the key of each group in ``keyed``.
        splits: int8 [N], index into SPLITS.
        uris: string [rows of the listing].
        rows: int32 [N], row of each record in the listing.
    """

    near: Groups
    keyed: Groups
    keys: pa.Array
    splits: Codes
    uris: pa.ChunkedArray
    rows: Rows


@dataclass(frozen=True)
class Dropped:
    """Records that are dropped from train.

    Attributes:
        records: int64 [D], their positions, rising.
        messages: string [D], why each is dropped.
    """

    records: Int64
    messages: pa.Array

    @classmethod
    def none(cls) -> Dropped:
        """Drop nothing."""
        return cls(np.empty(0, np.int64), pa.array([], pa.string()))


def settle_leaks(found: GroupedRecords, leakage: Leakage) -> tuple[Leaks, Dropped]:
    """Count the groups that are in several splits, and treat them according to ``groups.leakage``.

    Raises:
        LeakError: there are such groups, and ``leakage`` is "fail".
    """
    near, keyed = _divided(found.near, found.splits), _divided(found.keyed, found.splits)
    leaks = Leaks(near_duplicate_groups=int(near.sum()), key_groups=int(keyed.sum()))
    if leakage == "fail" and (near.any() or keyed.any()):
        raise _refusal(found, near, keyed, leaks)
    if leakage != "drop-from-train":
        return leaks, Dropped.none()
    dropped = _drop_from_train(found)
    return leaks.model_copy(update={"dropped_from_train": len(dropped.records)}), dropped


def _divided(groups: Groups, splits: Codes) -> npt.NDArray[np.bool_]:
    """Return which groups are in several splits: bool [groups]."""
    seen = np.zeros(groups.count, np.uint8)
    np.bitwise_or.at(seen, groups.groups, np.uint8(1) << splits[groups.records].astype(np.uint8))
    return np.asarray(np.bitwise_count(seen) > 1, np.bool_)


def _drop_from_train(found: GroupedRecords) -> Dropped:
    """Drop the records of train that share a group with a record of validation or test."""
    near, near_other = _train_members(found.near, found.splits)
    keyed, keyed_other = _train_members(found.keyed, found.splits)
    groups = found.keyed.groups[keyed]
    looks = _sentence("looks the same as ", found, found.near.records[near_other])
    belongs = pc.binary_join_element_wise(
        "is of the same group, ", found.keys.take(pa.array(groups)), ", as ", ""
    )
    belongs = _sentence(belongs, found, found.keyed.records[keyed_other])
    records = np.concatenate([found.near.records[near], found.keyed.records[keyed]])
    # A record with several such groups gets the message of the first.
    distinct, first = np.unique(records, return_index=True)
    return Dropped(distinct, pa.concat_arrays([looks, belongs]).take(pa.array(first)))


def _train_members(groups: Groups, splits: Codes) -> tuple[Int64, Int64]:
    """Find train's memberships in groups with other splits, and the first other member of each group."""
    is_train = splits[groups.records] == TRAIN
    others = np.flatnonzero(~is_train)
    first = np.full(groups.count, len(groups), np.int64)
    np.minimum.at(first, groups.groups[others], others)
    leaking = np.flatnonzero(is_train & (first[groups.groups] < len(groups)))
    return leaking, first[groups.groups[leaking]]


def _sentence(opening: str | pa.Array, found: GroupedRecords, others: Int64) -> pa.Array:
    """Return ``<opening><uri> in <split>`` for each of some records."""
    names = pa.array(SPLITS, pa.string()).take(pa.array(found.splits[others]))
    uris = one_chunk(found.uris.take(pa.array(found.rows[others])).cast(pa.string()))
    return pc.binary_join_element_wise(opening, uris, " in ", names, "")


def _refusal(
    found: GroupedRecords, near: npt.NDArray[np.bool_], keyed: npt.NDArray[np.bool_], leaks: Leaks
) -> LeakError:
    examples = [
        f"{_members(found, found.near, group)} look the same" for group in np.flatnonzero(near)[:_EXAMPLES]
    ]
    examples += [
        f"{_members(found, found.keyed, group)} are of group {found.keys[group].as_py()!r}"
        for group in np.flatnonzero(keyed)[: _EXAMPLES - len(examples)]
    ]
    count = leaks.near_duplicate_groups + leaks.key_groups
    are = "group is" if count == 1 else "groups are"
    more = "" if count <= len(examples) else f"; and {count - len(examples):,} more"
    return LeakError(
        f"{count:,} {are} divided among the splits: {'; '.join(examples)}{more}; nothing was published",
        "move or remove the files, or set groups.leakage=drop-from-train to leave train's copies out; "
        "set groups.leakage=keep to publish anyway; groups.near_duplicates=false turns the search off",
    )


def _members(found: GroupedRecords, groups: Groups, group: int) -> str:
    """Name one member of each split: ``a.jpg (train) and b.jpg (test)``."""
    start, stop = np.searchsorted(groups.groups, [group, group + 1])
    records = groups.records[start:stop]
    _, first = np.unique(found.splits[records], return_index=True)
    return " and ".join(
        f"{found.uris[int(found.rows[record])].as_py()} ({SPLITS[found.splits[record]]})"
        for record in records[first]
    )
