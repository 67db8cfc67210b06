"""Counts of the values that occur among the images of a split, and the distance of two such populations.

Populations of shards add up. The parts that chance explains are bounds that samples of one population exceed
in one of 10,000 comparisons: the inequalities of Dvoretzky, Kiefer and Wolfowitz for cumulative shares, of
McDiarmid for sums of differences, and the normal distribution for a single share. Each is in proportion to
the *spread* of the difference of two means, which is smaller where the two samples overlap.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.dataset.drift.scales import (
    INDEX_COLUMNS,
    TRAITS,
    Ints,
    Trait,
    binned,
    bins_of,
    target_trait,
)
from shardmill.infra.format.contract import Manifest, class_counts_of
from shardmill.infra.format.known_features import LABELS, TARGETS
from shardmill.infra.html.page import share

_HASH = "perceptual_hash"
_HASH_BITS = 64
PIXEL_GROUPS = ("colours", "looks")  # groups of figures that come from the stored image


@dataclass
class Population:
    """Counts of the images of a split, or of a part of it.

    Attributes:
        num_records: number of images.
        histograms: property -> int64 [bins of its scale].
        classes: class -> number of images that have it.
        bits: int64 [64], images whose perceptual hash has each bit.
        num_hashes: images with a perceptual hash.
    """

    num_records: int = 0
    histograms: dict[str, Ints] = field(default_factory=dict)
    classes: Counter[str] = field(default_factory=Counter)
    bits: Ints = field(default_factory=lambda: np.zeros(_HASH_BITS, np.int64))
    num_hashes: int = 0

    def add(self, rows: pa.Table, manifest: Manifest) -> None:
        """Count records.

        Args:
            rows: rows of an index, with the columns of ``columns_of``.
            manifest: manifest of the version, for the names of its labels.
        """
        self.num_records += rows.num_rows
        for name, bins in binned(rows, manifest.samples).items():
            self._count(name, bins, TRAITS[name].scale.num_bins)
        if TARGETS in rows.schema.names:
            self._count_targets(rows[TARGETS], manifest.label_names)
        self.classes.update(class_counts_of(rows, manifest.classes))
        if _HASH in rows.schema.names:
            hashes = rows[_HASH].drop_null().to_numpy()
            self.num_hashes += len(hashes)
            bits = np.unpackbits(hashes.astype(">u8").view(np.uint8).reshape(-1, 8), axis=1)
            self.bits += bits.sum(axis=0, dtype=np.int64)

    def with_pixels_of(self, other: Population) -> Population:
        """Return these images, with the figures of what is stored of others."""
        of_pixels = {name for name, trait in TRAITS.items() if trait.group in PIXEL_GROUPS}
        pixels = {name: counts for name, counts in other.histograms.items() if name in of_pixels}
        return replace(
            self, histograms={**self.histograms, **pixels}, bits=other.bits, num_hashes=other.num_hashes
        )

    def _count(self, name: str, bins: Ints, num_bins: int) -> None:
        counts = np.bincount(bins, minlength=num_bins)
        self.histograms[name] = self.histograms[name] + counts if name in self.histograms else counts

    def _count_targets(self, column: pa.ChunkedArray, names: list[str]) -> None:
        values: npt.NDArray[np.float64] = pc.list_flatten(column).to_numpy().astype(np.float64)
        by_target: Mapping[str, npt.NDArray[np.float64]]
        by_target = dict(zip(names, values.reshape(-1, len(names)).T, strict=True)) if names else {}
        for name in by_target:
            trait = target_trait(name)
            self._count(trait.title, bins_of(trait, by_target), trait.scale.num_bins)


def columns_of(manifest: Manifest) -> list[str]:
    """Return the columns of indexes that a population counts, and the id."""
    labels = {"targets": TARGETS, "multi": LABELS, "mask": LABELS}.get(manifest.label_kind)
    return ["id", "label", _HASH, *INDEX_COLUMNS, *([labels] if labels else [])]


def typical(trait: Trait, before: Ints, after: Ints) -> tuple[str, str]:
    """Describe the largest difference of two histograms (int64 [bins]) by a text for each.

    The medians, or if these are alike the shares of images up to the value where the shares differ most.
    """
    medians = [trait.shown(trait.scale.value(_median(counts))) for counts in (before, after)]
    if medians[0] != medians[1]:
        return f"median {medians[0]}", f"median {medians[1]}"
    below = [np.cumsum(counts) for counts in (before, after)]
    place = int(np.abs(below[0] / below[0][-1] - below[1] / below[1][-1]).argmax())
    value = trait.shown(trait.scale.value(place))
    was, now = (f"{share(int(counts[place]), int(counts[-1]))} up to {value}" for counts in below)
    return was, now


def leading_class(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[str, str]:
    """Describe the class whose share changed most: its share before and after."""
    totals = sum(before.values()), sum(after.values())
    by_change = {
        name: abs(before.get(name, 0) / totals[0] - after.get(name, 0) / totals[1])
        for name in sorted(before.keys() | after.keys())
    }
    name = max(by_change, key=lambda one: by_change[one])
    was, now = share(before.get(name, 0), totals[0]), share(after.get(name, 0), totals[1])
    return f"“{name}” {was}", f"“{name}” {now}"


def _median(counts: Ints) -> int:
    below = np.cumsum(counts)
    return int(np.searchsorted(below, (below[-1] + 1) // 2))


_RARE = 1e-4  # share of comparisons of samples of one population that exceed the bounds
_CUMULATIVE = math.sqrt(math.log(2 / _RARE) / 2)
_BOUNDED = math.sqrt(math.log(1 / _RARE) / 2)
_NORMAL = 3.9  # quantile of a normal variable that one of 10,000 exceeds


@dataclass(frozen=True, slots=True)
class Distance:
    """The distance of two populations, and the part of it that chance explains: 0 to 1 each."""

    value: float
    chance: float


def spread(num_before: int, num_after: int, num_common: int = 0) -> float:
    """Return the standard deviation of the difference of the means of two samples, for values of deviation 1.

    Args:
        num_before: images of the first sample.
        num_after: images of the second sample.
        num_common: images that are in both.
    """
    common = num_common * (1 / num_before - 1 / num_after) ** 2
    before, after = num_before - num_common, num_after - num_common
    return math.sqrt(common + before / num_before**2 + after / num_after**2)


def of_numbers(before: Ints, after: Ints, deviation: float) -> Distance:
    """Compare two histograms (int64 [bins], neither of them empty)."""
    shares = [np.cumsum(counts) / counts.sum() for counts in (before, after)]
    return Distance(float(np.abs(shares[0] - shares[1]).max()), min(1.0, _CUMULATIVE * deviation))


def of_classes(before: Mapping[str, int], after: Mapping[str, int], deviation: float) -> Distance:
    """Compare two counts of classes, neither of them empty."""
    totals = sum(before.values()), sum(after.values())
    value = noise = 0.0
    for name in before.keys() | after.keys():
        counts = before.get(name, 0), after.get(name, 0)
        value += abs(counts[0] / totals[0] - counts[1] / totals[1]) / 2
        both = sum(counts) / sum(totals)
        noise += math.sqrt(both * (1 - both)) / 2
    return Distance(value, min(1.0, (noise + _BOUNDED) * deviation))


def of_bits(before: Ints, num_before: int, after: Ints, num_after: int, deviation: float) -> Distance:
    """Compare how many of the images have each bit (int64 [bits])."""
    value = np.abs(before / num_before - after / num_after).mean()
    both = (before + after) / (num_before + num_after)
    noise = np.sqrt(both * (1 - both)).mean()
    return Distance(float(value), min(1.0, float(noise + _BOUNDED) * deviation))


def of_rates(before: float, after: float, deviation: float) -> Distance:
    """Return the rise of a share; a fall is no distance."""
    both = max(before, after)
    return Distance(max(0.0, after - before), min(1.0, _NORMAL * math.sqrt(both * (1 - both)) * deviation))
