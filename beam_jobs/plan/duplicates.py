"""Exact duplicates: files with equal content, and the labels that contradict each other among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.plan.hashing import record_ids
from infra.contract import LabelConflict
from infra.errors import DataError

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Duplicates:
    """Which files become records, and which repeat one.

    Attributes:
        kept: int64 [K], positions of the files that become records, rising.
        repeats: int64 [R], positions of the others, rising.
        record_of_repeat: int64 [R], for each of those, the position in ``kept`` of the record it repeats.
    """

    kept: Int64
    repeats: Int64
    record_of_repeat: Int64


def find_duplicates(digests: npt.NDArray[np.uint8], uris: pa.ChunkedArray, rows: Int64) -> Duplicates:
    """Group files by content. Of each group the first is kept: the one with the smallest URI.

    Args:
        digests: uint8 [N, 32], SHA-256 of each file, in the order of their URIs.
        uris: of the whole listing.
        rows: int64 [N], place of each file in the listing; names files in errors.

    Raises:
        DataError: files of different content share the 64 bits that are the record id.
    """
    ids = record_ids(digests)
    order = np.argsort(ids, kind="stable")
    opens_group = np.ones(len(ids), np.bool_)
    opens_group[1:] = ids[order][1:] != ids[order][:-1]
    group_of_ordered = np.cumsum(opens_group) - 1
    first = order[opens_group]  # stable: the smallest position of each group
    first_of = np.empty(len(ids), np.int64)
    first_of[order] = first[group_of_ordered]

    positions = np.arange(len(ids))
    repeats = np.flatnonzero(first_of != positions)
    originals = first_of[repeats]
    differing = np.flatnonzero((digests[repeats] != digests[originals]).any(axis=1))
    if len(differing):
        one, other = repeats[differing[0]], originals[differing[0]]
        raise DataError(
            f"{uris[int(rows[one])].as_py()} and {uris[int(rows[other])].as_py()} differ, "
            f"but share the record id {ids[one]:016x}",
            "take one of them out of the source: ids are the first 64 bits of a SHA-256",
        )
    kept = np.flatnonzero(first_of == positions)
    return Duplicates(kept, repeats, np.searchsorted(kept, originals))


def find_label_conflicts(
    digests: npt.NDArray[np.uint8], uris: pa.ChunkedArray, labels: pa.ChunkedArray, found: Duplicates
) -> list[LabelConflict]:
    """Contents that occur under several labels, in the order of the URIs that were kept.

    The first label of each is that of the record.

    Args:
        digests: uint8 [N, 32].
        uris, labels: string [N].
        found: their duplicates.
    """
    originals = found.kept[found.record_of_repeat]
    differs = pc.not_equal(labels.take(found.repeats), labels.take(originals))
    contested = set(originals[np.asarray(differs.to_numpy(), np.bool_)].tolist())
    members: dict[int, list[int]] = {original: [original] for original in sorted(contested)}
    for repeat, original in zip(found.repeats.tolist(), originals.tolist(), strict=True):
        if original in contested:
            members[original].append(repeat)
    return [
        LabelConflict(
            sha256=digests[original].tobytes().hex(),
            uris=uris.take(group).to_pylist(),
            labels=list(dict.fromkeys(labels.take(group).to_pylist())),
        )
        for original, group in members.items()
    ]
