"""Counts of the values that occur among the images of a split; populations of shards add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.dataset.drift.scales import INDEX_COLUMNS, TRAITS, Ints, binned, bins_of, target_trait
from shardmill.infra.format.contract import Manifest, class_counts_of
from shardmill.infra.format.labels import LABELS, TARGETS

HASH = "perceptual_hash"
HASH_BITS = 64
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
    bits: Ints = field(default_factory=lambda: np.zeros(HASH_BITS, np.int64))
    num_hashes: int = 0

    def add(self, rows: pa.Table, manifest: Manifest) -> None:
        """Count records.

        Args:
            rows: rows of an index, with the columns of ``columns_of``.
            manifest: manifest of the version, for the names of its labels.
        """
        self.num_records += rows.num_rows
        for name, bins in binned(rows).items():
            self._count(name, bins, TRAITS[name].scale.num_bins)
        if TARGETS in rows.schema.names:
            self._count_targets(rows[TARGETS], manifest.label_names)
        self.classes.update(class_counts_of(rows, manifest.classes))
        if HASH in rows.schema.names:
            hashes = rows[HASH].drop_null().to_numpy()
            self.num_hashes += len(hashes)
            bits = np.unpackbits(hashes.astype(">u8").view(np.uint8).reshape(-1, 8), axis=1)
            self.bits += bits.sum(axis=0, dtype=np.int64)

    def merge(self, other: Population) -> None:
        """Count the images of another population too."""
        self.num_records += other.num_records
        for name, counts in other.histograms.items():
            self.histograms[name] = self.histograms[name] + counts if name in self.histograms else counts
        self.classes.update(other.classes)
        self.bits = self.bits + other.bits
        self.num_hashes += other.num_hashes

    def with_pixels_of(self, other: Population) -> Population:
        """Return these images, with the figures of what is stored of others."""
        pixels = {name: counts for name, counts in other.histograms.items() if _is_of_pixels(name)}
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


def _is_of_pixels(name: str) -> bool:
    return name in TRAITS and TRAITS[name].group in PIXEL_GROUPS


def columns_of(manifest: Manifest) -> list[str]:
    """Return the columns of indexes that a population counts, and the id."""
    labels = {"targets": TARGETS, "multi": LABELS, "mask": LABELS}.get(manifest.label_kind)
    return ["id", "label", HASH, *INDEX_COLUMNS, *([labels] if labels else [])]
