"""Plan the cache of a split: the largest requested form that fits its budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError
from shardmill.training.arrays import Ints
from shardmill.training.config.reading import CacheForm, ReadingSettings
from shardmill.training.reading.records.split_table import SplitTable


@dataclass(frozen=True, slots=True)
class CachePlan:
    """The place and form of a cache.

    Attributes:
        place: "none", "memory" or "disk".
        form: images as stored, or decoded (uint8 [h, w, 3] each).
        offsets: int64 [N + 1], where each image begins, and the end of the last (bytes).
        reason: why the plan differs from the settings; empty if it does not.
    """

    place: Literal["none", "memory", "disk"]
    form: CacheForm
    offsets: Ints
    reason: str = ""

    @property
    def num_bytes(self) -> int:
        """The size of all images (bytes)."""
        return int(self.offsets[-1])

    @property
    def memory_bytes(self) -> int:
        """The memory that the cache takes (bytes)."""
        return self.num_bytes if self.place == "memory" else 0


def no_cache(reason: str = "") -> CachePlan:
    """Return the plan of no cache. ``reason``: why, if the settings ask for one."""
    return CachePlan("none", "encoded", np.zeros(1, np.int64), reason)


def plan_cache(
    version: DatasetVersion, table: SplitTable, reading: ReadingSettings, budget_bytes: int
) -> CachePlan:
    """Plan the cache that ``reading`` asks for, or the part of it that fits ``budget_bytes``.

    Raises:
        ConfigError: it does not fit, and ``reading.cache_overflow`` is "refuse".
    """
    forms: tuple[CacheForm, ...] = ("decoded", "encoded") if reading.cache_form == "decoded" else ("encoded",)
    problems: list[str] = []
    for form in forms:
        offsets = image_offsets(version, table, form)
        if offsets[-1] <= budget_bytes:
            return CachePlan(reading.cache, form, offsets, "; ".join(problems))
        problems.append(
            f"the {form} images of {version.ref} {table.split} take {offsets[-1]:,} bytes, and the cache "
            f"({reading.cache}) may take {budget_bytes:,}"
        )
        if reading.cache_overflow == "refuse":
            raise ConfigError(
                problems[0],
                f"set reading.cache_bytes to at least {offsets[-1]}"
                + (" and reading.ram_budget_bytes to twice that" if reading.cache == "memory" else ""),
            )
    return no_cache("; ".join(problems))


def image_offsets(version: DatasetVersion, table: SplitTable, form: CacheForm) -> Ints:
    """Return the offset of each image in a cache of consecutive images, and the end: int64 [N + 1]."""
    if form == "decoded":
        sizes = table.height.astype(np.int64) * table.width * 3
    else:
        columns = [version.rows(shard, ["stored_bytes"]) for shard in version.shards(table.split)]
        sizes = np.concatenate([column["stored_bytes"].to_numpy() for column in columns]).astype(np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
