"""Labels and features of the records of a split, from its indexes: no record is read for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import UsageError
from shardmill.infra.format.features import MISSING, Feature
from shardmill.infra.format.known_features import LABEL_FEATURES
from shardmill.infra.near_names import near_miss
from shardmill.training.arrays import Ints

Array = npt.NDArray[Any]


class Padded(NamedTuple):
    """The lists of a batch, of different lengths.

    Attributes:
        values: [b, longest]; behind the end of a list the missing value: -2**63, NaN, or no bytes or text.
        lengths: int64 [b], number of values of each list.
    """

    values: Array
    lengths: npt.NDArray[np.int64]

    @classmethod
    def of(cls, values: Array, lengths: Ints, missing: Any) -> Padded:
        """Return lists whose values stand one after the other, padded with the missing value."""
        padded = np.full((len(lengths), int(lengths.max(initial=0))), missing, values.dtype)
        padded[np.repeat(np.arange(len(lengths)), lengths), places_in(lengths)] = values
        return cls(padded, lengths)


def places_in(lengths: Ints) -> Ints:
    """Return the place of each value in its list, for lists one after the other: int64 [sum of lengths]."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def taken_from(starts: Ints, lists: Ints) -> tuple[Ints, Ints]:
    """Return the places of all values of some lists, and the length of each list.

    Args:
        starts: int64 [N + 1], where each list begins among all values.
        lists: int64 [n], numbers of the lists.
    """
    lengths = starts[lists + 1] - starts[lists]
    return np.repeat(starts[lists], lengths) + places_in(lengths), lengths


@dataclass(frozen=True, slots=True)
class SetLabels:
    """Any number of labels a record.

    Attributes:
        starts: int64 [N + 1], where the labels of each record begin.
        labels: int32 [sum of lengths], indexes into the classes.
        num_classes: C.
        known: bool [K, C], the classes that each of several data sets has; None: all have all.
        stops: int64 [K], behind the last record of each.
    """

    starts: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int32]
    num_classes: int
    known: npt.NDArray[np.bool_] | None = None
    stops: npt.NDArray[np.int64] | None = None

    @classmethod
    def of(cls, column: pa.ChunkedArray, num_classes: int) -> SetLabels:
        """Read the column ``labels`` of indexes."""
        array = _joined(column)
        lengths = array.value_lengths().fill_null(0).to_numpy()
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        return cls(starts, array.flatten().to_numpy().astype(np.int32), num_classes)

    def part(self, records: slice) -> SetLabels:
        """Return the labels of neighbouring records of one data set."""
        starts = self.starts[records.start : records.stop + 1]
        return SetLabels(starts - starts[0], self.labels[starts[0] : starts[-1]], self.num_classes)

    def chosen(self, ordinals: Ints) -> SetLabels:
        """Return the labels of some records of one data set, in their order."""
        taken, lengths = taken_from(self.starts, ordinals)
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        return SetLabels(starts, self.labels[taken], self.num_classes)

    @property
    def width(self) -> int:
        """The length of a row of labels."""
        return self.num_classes

    def rows(self, ordinals: Ints) -> npt.NDArray[np.float32]:
        """Return 1 for each class that a record has, else 0: float32 [b, C].

        NaN for a class that the data set of the record does not have: nobody has looked for it.
        """
        found = np.zeros((len(ordinals), self.num_classes), np.float32)
        taken, lengths = taken_from(self.starts, ordinals)
        found[np.repeat(np.arange(len(ordinals)), lengths), self.labels[taken]] = 1
        if self.known is not None and self.stops is not None:
            found[~self.known[np.searchsorted(self.stops, ordinals, side="right")]] = np.nan
        return found


@dataclass(frozen=True, slots=True)
class Targets:
    """Numbers of each record: float32 [N, T]."""

    values: npt.NDArray[np.float32]

    @classmethod
    def of(cls, column: pa.ChunkedArray, width: int) -> Targets:
        """Read the column ``targets`` of indexes."""
        return cls(_joined(column).flatten().to_numpy().reshape(-1, width))

    @property
    def width(self) -> int:
        """The length of a row of labels."""
        return int(self.values.shape[1])

    def rows(self, ordinals: Ints) -> npt.NDArray[np.float32]:
        """Return the numbers of records: float32 [b, T]."""
        return self.values[ordinals]


@dataclass(frozen=True)
class FeatureColumns:
    """Features of all records of a split, by name.

    Attributes:
        features: their descriptions.
        columns: [N] each, of ``Feature.arrow_type``; null where a record has none.
    """

    features: tuple[Feature, ...] = ()
    columns: Mapping[str, pa.Array] | None = None

    @classmethod
    def of(cls, features: Sequence[Feature], rows: pa.Table) -> FeatureColumns:
        """Take the columns of features from indexes."""
        return cls(tuple(features), {feature.name: _joined(rows[feature.name]) for feature in features})

    def divided(self, names: Collection[str]) -> tuple[FeatureColumns, FeatureColumns]:
        """Return the features of some names, and the others."""
        chosen, others = (
            replace(self, features=tuple(one for one in self.features if (one.name in names) == among))
            for among in (True, False)
        )
        return chosen, others

    def rows(self, ordinals: Ints) -> dict[str, Array | Padded]:
        """Return the features of records, by name.

        Returns:
            int64, float32 or object (bytes, or str if it is text): [b] for one value, [b, length] for a fixed
            number of them; ``Padded`` for any number.
        """
        taken = pa.array(ordinals)
        columns = self.columns or {}
        return {feature.name: _rows(feature, columns[feature.name].take(taken)) for feature in self.features}


NO_FEATURES = FeatureColumns()


def chosen_features(version: DatasetVersion, names: Sequence[str]) -> list[Feature]:
    """Return the features of some names, in this order.

    Raises:
        UsageError: the version has no such feature, or not all of several data sets have it alike.
    """
    known = version.manifest.extra_features
    by_name = {feature.name: feature for feature in known if feature.name not in LABEL_FEATURES}
    for name in names:
        if name not in by_name:
            differing = version.why_not_joined(name)
            raise UsageError(
                f"{version.ref} has no feature {name!r}" + (f" alike: {differing}" if differing else ""),
                "prepare one of them again like the other, or read each by itself"
                if differing
                else near_miss(name, list(by_name)) or f"it has: {', '.join(by_name) or 'none'}",
            )
    return [by_name[name] for name in names]


def _rows(feature: Feature, column: pa.Array) -> Array | Padded:
    missing = "" if feature.is_text else MISSING[feature.dtype]
    dtype = object if feature.dtype == "bytes" else np.dtype(feature.dtype)
    if feature.shape == "scalar":
        return np.asarray(column.fill_null(missing).to_numpy(zero_copy_only=False), dtype)
    lengths = column.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    values = np.asarray(column.flatten().to_numpy(zero_copy_only=False), dtype)
    if feature.length is None:
        return Padded.of(values, lengths, missing)
    fixed = np.full((len(column), feature.length), missing, dtype)
    fixed[lengths > 0] = values.reshape(-1, feature.length)
    return fixed


def _joined(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
