"""Compare a version with the one before it: from indexes and inputs to figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.dataset.compare import differing_inputs, same_place
from shardmill.infra.dataset.drift.figures import Drift, DriftFigure, DriftLimits, Group, Scope
from shardmill.infra.dataset.drift.population import (
    PIXEL_GROUPS,
    Distance,
    Population,
    columns_of,
    leading_class,
    of_bits,
    of_classes,
    of_numbers,
    of_rates,
    spread,
    typical,
)
from shardmill.infra.dataset.drift.scales import TRAITS, target_trait
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.contract import DUPLICATE, FILTERED, QUARANTINED, Shard
from shardmill.infra.html.page import share
from shardmill.infra.preparation import changed_pixels

_Ids = npt.NDArray[np.uint64]


def measure(before: DatasetVersion, after: DatasetVersion, limits: DriftLimits) -> Drift:
    """Compare a version, which need not be published yet, with the one before it.

    Args:
        before: the older version.
        after: the newer version.
        limits: largest distance of each figure.

    Raises:
        CorruptDataError: a file that a manifest names is missing or unreadable.
    """
    counted = _count(before, after, apart=_stores_otherwise(before, after))
    figures = [*_splits(counted, limits), *_rates(before, after, limits)]
    return Drift(before.ref, after.ref, tuple(figures))


def _by_split() -> defaultdict[str, Population]:
    return defaultdict(Population)


@dataclass
class _Counted:
    """The populations of each split.

    Attributes:
        before, after: of both versions.
        new: the images that only the newer version has.
        was, now: the images that both have, as each version stores them; empty unless by other settings.
    """

    before: defaultdict[str, Population] = field(default_factory=_by_split)
    after: defaultdict[str, Population] = field(default_factory=_by_split)
    new: defaultdict[str, Population] = field(default_factory=_by_split)
    was: defaultdict[str, Population] = field(default_factory=_by_split)
    now: defaultdict[str, Population] = field(default_factory=_by_split)


def _stores_otherwise(before: DatasetVersion, after: DatasetVersion) -> bool:
    """Tell whether the settings of both versions turn the same image into different pixels."""
    then, now = (version.manifest.config.get("image", {}) for version in (before, after))
    return bool(changed_pixels(then, now))


def _count(before: DatasetVersion, after: DatasetVersion, *, apart: bool) -> _Counted:
    """Count the records of both versions; shards that both name are read once.

    Args:
        before: the older version.
        after: the newer version.
        apart: count the images that both versions have too, as each stores them.
    """
    names = {shard.path for shard in after.manifest.shards} if same_place(before, after) else set()
    counted, ids = _Counted(), [np.empty(0, np.uint64)]
    shared = set()
    for shard in before.manifest.shards:
        rows = _rows(before, shard)
        counted.before[shard.split].add(rows, before.manifest)
        if shard.path in names:
            shared.add(shard.path)
            counted.after[shard.split].add(rows, after.manifest)
        else:
            ids.append(_ids(rows))
    known = np.unique(np.concatenate(ids))
    later = np.concatenate([ids[0], *(_ids(_rows(after, shard)) for shard in after.manifest.shards if apart)])
    for shard in before.manifest.shards if apart else ():
        rows = _rows(before, shard)
        counted.was[shard.split].add(rows.filter(pa.array(np.isin(_ids(rows), later))), before.manifest)
    for shard in after.manifest.shards:
        if shard.path in shared:
            continue
        rows = _rows(after, shard)
        is_new = ~np.isin(_ids(rows), known)
        counted.new[shard.split].add(rows.filter(pa.array(is_new)), after.manifest)
        counted.after[shard.split].add(rows, after.manifest)
        if apart:
            counted.now[shard.split].add(rows.filter(pa.array(~is_new)), after.manifest)
    return counted


def _rows(version: DatasetVersion, shard: Shard) -> pa.Table:
    return version.rows(shard, columns_of(version.manifest))


def _ids(rows: pa.Table) -> _Ids:
    """Return the ids of records, which are 16 hexadecimal digits each, as numbers."""
    return np.frombuffer(bytes.fromhex("".join(rows["id"].to_pylist())), ">u8").astype(np.uint64)


def _splits(counted: _Counted, limits: DriftLimits) -> Iterator[DriftFigure]:
    """Yield the figures of each split that both versions have."""
    for split, before in counted.before.items():
        new, after, now = counted.new[split], counted.after[split], counted.now[split]
        if now.num_records:
            yield from _Comparison(limits, split, "same", 0.0).pixel_figures(counted.was[split], now)
            # Drift is what differs from the images before, as the settings store them now.
            before = before.with_pixels_of(now)
        if before.num_records and new.num_records:
            deviation = spread(before.num_records, new.num_records)
            yield from _Comparison(limits, split, "new", deviation).figures(before, new)
        if before.num_records and after.num_records:
            common = min(before.num_records, after.num_records - new.num_records)
            deviation = spread(before.num_records, after.num_records, common)
            yield from _Comparison(limits, split, "all", deviation).figures(before, after)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The common part of the figures of two populations and of the inputs of two versions."""

    limits: DriftLimits
    split: str | None
    scope: Scope
    deviation: float

    def figures(self, before: Population, after: Population) -> Iterator[DriftFigure]:
        sizes = before.num_records, after.num_records
        if before.classes and after.classes:
            distance = of_classes(before.classes, after.classes, self.deviation)
            texts = leading_class(before.classes, after.classes)
            yield self._figure("classes", "classes", distance, texts, sizes)
        for name in [name for name in before.histograms if name in after.histograms]:
            trait = TRAITS.get(name) or target_trait(name)
            counts = before.histograms[name], after.histograms[name]
            if all(one.any() for one in counts):
                distance = of_numbers(*counts, self.deviation)
                yield self._figure(trait.group, trait.title, distance, typical(trait, *counts), sizes)
        if before.num_hashes and after.num_hashes:
            distance = of_bits(before.bits, before.num_hashes, after.bits, after.num_hashes, self.deviation)
            yield self._figure("looks", "coarse structure", distance, ("", ""), sizes)

    def pixel_figures(self, before: Population, after: Population) -> Iterator[DriftFigure]:
        """Yield the figures of what is stored of two populations with images, where they differ."""
        figures = self.figures(before, after)
        return (figure for figure in figures if figure.group in PIXEL_GROUPS and figure.distance)

    def rates(self, before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[DriftFigure]:
        sizes = _usable(before), _usable(after)
        groups: tuple[tuple[Group, str], ...] = (("duplicates", DUPLICATE), ("quarantine", QUARANTINED))
        for group, outcome in groups:
            shares = before.get(outcome, 0) / sizes[0], after.get(outcome, 0) / sizes[1]
            texts = share(before.get(outcome, 0), sizes[0]), share(after.get(outcome, 0), sizes[1])
            title = "share of duplicates" if outcome == DUPLICATE else "share of quarantined ones"
            yield self._figure(group, title, of_rates(*shares, self.deviation), texts, sizes)

    def _figure(
        self, group: Group, title: str, distance: Distance, texts: tuple[str, str], sizes: tuple[int, int]
    ) -> DriftFigure:
        return DriftFigure(
            group=group,
            title=title,
            split=self.split,
            scope=self.scope,
            distance=distance.value,
            chance=distance.chance,
            limit=self.limits.of(group, whole=self.scope == "all"),
            before=texts[0],
            after=texts[1],
            num_before=sizes[0],
            num_after=sizes[1],
        )


def _rates(before: DatasetVersion, after: DatasetVersion, limits: DriftLimits) -> Iterator[DriftFigure]:
    """Yield the figures of the inputs, filtered ones apart."""
    was, now = before.manifest.accounting.outcomes, after.manifest.accounting.outcomes
    new = _new_outcomes(before, after)
    num_before, num_after, num_new = _usable(was), _usable(now), _usable(new)
    if num_before and num_new:
        yield from _Comparison(limits, None, "new", spread(num_before, num_new)).rates(was, new)
    if num_before and num_after:
        common = min(num_before, num_after - num_new)
        yield from _Comparison(limits, None, "all", spread(num_before, num_after, common)).rates(was, now)


def _new_outcomes(before: DatasetVersion, after: DatasetVersion) -> dict[str, int]:
    """Return outcome -> number of inputs that the version before did not have, or had with other bytes."""
    old, new = differing_inputs(before, after)
    places = pc.index_in(new["uri"], old["uri"].combine_chunks())
    same = pc.equal(pc.fill_null(new["sha256"], ""), pc.fill_null(old["sha256"].take(places), ""))
    is_new = pc.or_(pc.is_null(places), pc.invert(same))
    counted = pc.value_counts(new.filter(is_new)["outcome"]).to_pylist()
    return {str(entry["values"]): int(entry["counts"]) for entry in counted}


def _usable(outcomes: Mapping[str, int]) -> int:
    """Return the number of inputs that no rule leaves out."""
    return sum(count for outcome, count in outcomes.items() if outcome != FILTERED)
