"""Find the records whose further features differ between two versions: masks, boxes, captions.

Only indexes of shards that one version alone names are read, a feature at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.contract import Shard
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import LABELS, MASK, MASK_BYTES, MASK_SHA256, TARGETS

Bools = npt.NDArray[np.bool_]

# Labels have a comparison of their own. The index does not hold masks, and their length follows from them.
_NOT_COMPARED = frozenset({LABELS, TARGETS, MASK, MASK_BYTES})
_VALUES_SHOWN = 4


def find_feature_changes(
    before: DatasetVersion, after: DatasetVersion, examples: int
) -> tuple[int, list[dict[str, Any]]]:
    """Find the records of both versions that have other values of a feature that both have.

    Args:
        before: the older version.
        after: the newer version.
        examples: the number of changes to describe.

    Returns:
        The number of such records; and the first of them by URI as ``uri``, ``record_id``, ``feature`` (the
        first that differs), and its values ``before`` and ``after`` for people.

    Raises:
        CorruptDataError: an index is missing or unreadable.
    """
    old_features = set(before.manifest.extra_features)
    both = [
        feature
        for feature in after.manifest.extra_features
        if feature in old_features and feature.name not in _NOT_COMPARED
    ]
    if not both:
        return 0, []
    both.sort(key=lambda feature: feature.name != MASK_SHA256)  # says best that a mask has changed
    shards = _own_shards(before, after), _own_shards(after, before)
    was, now = _column(before, shards[0], "id"), _column(after, shards[1], "id")
    places = pc.index_in(was, now)
    rows = pc.indices_nonzero(pc.is_valid(places)), places.drop_null()
    first = np.full(len(rows[0]), len(both))
    for number, feature in enumerate(reversed(both)):
        differs = unequal(*_values(before, after, shards, rows, feature))
        first[differs] = len(both) - 1 - number
    changed = np.flatnonzero(first < len(both))
    uris = _column(after, shards[1], "source_uri").take(rows[1].take(pa.array(changed)))
    shown = changed[pc.sort_indices(uris).to_numpy()[:examples]]
    return len(changed), [
        _described(before, after, shards, (rows[0][row].as_py(), rows[1][row].as_py()), both[first[row]])
        for row in shown.tolist()
    ]


def unequal(was: pa.Array, now: pa.Array) -> Bools:
    """Compare two columns of one type: bool [N], true where they differ. Nulls are equal, and so are NaNs."""
    if pa.types.is_list(was.type):
        lengths = [pc.fill_null(pc.list_value_length(column), -1).to_numpy() for column in (was, now)]
        found = np.asarray(lengths[0] != lengths[1])
        alike = pa.array(~found)
        rows = np.repeat(np.flatnonzero(~found), np.maximum(lengths[0][~found], 0))
        differs = unequal(was.filter(alike).flatten(), now.filter(alike).flatten())
        found[rows[differs]] = True
        return found
    nulls = np.asarray(pc.is_null(was).to_numpy(False) != pc.is_null(now).to_numpy(False))
    differs = np.asarray(pc.fill_null(pc.not_equal(was, now), False).to_numpy(False), np.bool_)
    if pa.types.is_floating(was.type):
        both_nan = pc.and_(pc.is_nan(was), pc.is_nan(now))
        differs &= ~np.asarray(pc.fill_null(both_nan, False).to_numpy(False), np.bool_)
    return nulls | differs


def _own_shards(version: DatasetVersion, other: DatasetVersion) -> list[Shard]:
    """Return the shards that the other version does not name."""
    if version.storage.uri != other.storage.uri:
        return list(version.manifest.shards)
    known = {shard.path for shard in other.manifest.shards}
    return [shard for shard in version.manifest.shards if shard.path not in known]


def _column(version: DatasetVersion, shards: Sequence[Shard], name: str) -> pa.Array:
    parts = [version.rows(shard, [name])[name].combine_chunks() for shard in shards]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.string())


def _values(
    before: DatasetVersion,
    after: DatasetVersion,
    shards: tuple[Sequence[Shard], Sequence[Shard]],
    rows: tuple[pa.Array, pa.Array],
    feature: Feature,
) -> tuple[pa.Array, pa.Array]:
    """Return the values of a feature in the records that both versions have, side by side."""
    was, now = (
        _column(version, some, feature.name).cast(feature.arrow_type).take(at)
        if some
        else pa.array([], feature.arrow_type)
        for version, some, at in zip((before, after), shards, rows, strict=True)
    )
    return was, now


def _described(
    before: DatasetVersion,
    after: DatasetVersion,
    shards: tuple[Sequence[Shard], Sequence[Shard]],
    places: tuple[int, int],
    feature: Feature,
) -> dict[str, Any]:
    """Describe a change; ``places`` are the rows of the record among those of the shards."""
    at = tuple(pa.array([place], pa.int64()) for place in places)
    was, now = _values(before, after, shards, (at[0], at[1]), feature)
    uri, record_id = (_column(after, shards[1], name).take(at[1])[0].as_py() for name in ("source_uri", "id"))
    values = {"before": _in_words(was[0].as_py()), "after": _in_words(now[0].as_py())}
    return {"uri": uri, "record_id": record_id, "feature": feature.name, **values}


def _in_words(value: Any) -> str | None:
    """Return a value for people, of a long list the first ones."""
    if isinstance(value, list):
        more = [f"… {len(value)} values"] if len(value) > _VALUES_SHOWN else []
        return ", ".join([str(_in_words(one)) for one in value[:_VALUES_SHOWN]] + more) or "none"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    return None if value is None else str(value)
