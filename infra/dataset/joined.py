"""Several versions or views read as one: their records follow each other, their classes are joined by name.

``photos@3; web@1?licence == 'CC0'`` names a *joined version*. It is written nowhere: its manifest is made of
those of its data sets, and their shards have paths relative to the root of all datasets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.infra.dataset.between import find_between
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.dataset.views.references import JoinedReference
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import CorruptDataError, DataError, UsageError
from shardmill.infra.format.contract import (
    Accounting,
    ChannelStatistics,
    Manifest,
    Shard,
    SplitStatistics,
    class_counts_of,
    summarise_splits,
)
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import (
    BOXES,
    LABELS,
    OBJECT_LABELS,
    SHAPE_GROUPS,
    TARGETS,
    WORDS,
)
from shardmill.infra.near_names import near_miss
from shardmill.infra.preparation import changed_pixels
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json

_TRAIN = "train"
_DECODED_ALIKE = ("jpeg", "png", "webp")


class _SetShard(Shard):
    """A shard of a data set, by paths relative to the root of all datasets."""

    data_set: int


@dataclass(frozen=True, slots=True)
class _Set:
    """One of the data sets.

    Attributes:
        version: the version or view.
        numbers: int64 [C + 1], the number of each of its classes among those of all; behind them that of -1.
    """

    version: DatasetVersion
    numbers: npt.NDArray[np.int64]

    @property
    def keeps_numbers(self) -> bool:
        """Whether its classes have their own numbers."""
        return bool((self.numbers[:-1] == np.arange(self.numbers.size - 1)).all())

    @property
    def joins_numbers(self) -> bool:
        """Whether two of its classes have one number."""
        return bool(np.unique(self.numbers).size < self.numbers.size)


class JoinedVersion(DatasetVersion):
    """Several versions or views read as one. Shards, and so records, are those of one data set after another.

    Attributes:
        reference: names the data sets.
    """

    def __init__(self, root: Storage, reference: JoinedReference, versions: Sequence[DatasetVersion]) -> None:
        """Join versions.

        Args:
            root: the folder of all datasets.
            reference: names the versions; each with its number.
            versions: the versions or views, in this order.

        Raises:
            UsageError: the map of classes names none of theirs, or one is named twice.
            DataError: their labels or images are of different kinds.
        """
        _check_once(versions)
        _check_alike(versions)
        classes = _joined_classes(versions, reference.classes)
        super().__init__(root, _manifest(reference, versions, classes))
        self.reference = reference
        number_of = {name: number for number, name in enumerate(classes)}
        self._sets = [
            _Set(one, np.array([*(number_of[name] for name in _renamed(one, reference.classes)), -1]))
            for one in versions
        ]
        self._left_out: dict[int, pa.Array] = self._superfluous() if reference.drops_near else {}

    @cached_property
    def near_duplicates(self) -> pa.Table:
        """The records that look the same as one of another data set (``between.BETWEEN_SCHEMA``)."""
        return find_between(
            [
                (one, [split for split in one.manifest.splits if part.has(split)])
                for part, one in zip(self.reference.parts, self.data_sets, strict=True)
            ]
        )

    @property
    def differences(self) -> list[str]:
        """The settings by which stored images were made otherwise than those of the first, in words."""
        first, *others = self.data_sets
        found = []
        for other in others:
            images = [one.manifest.config.get("image", {}) for one in (first, other)]
            found += [
                f"image.{name} is {dump_json(then)} in {first.ref} and {dump_json(now)} in {other.ref}"
                for name, (then, now) in changed_pixels(*images).items()
            ]
            builds = first.manifest.codecs.items() & other.manifest.codecs.items()
            both = first.manifest.codecs.keys() & other.manifest.codecs.keys()
            if names := sorted(both - dict(builds).keys()):
                found.append(f"{first.ref} and {other.ref} had different builds of {', '.join(names)}")
        return found

    def _superfluous(self) -> dict[int, pa.Array]:
        """Return the ids of the records of train that are left out, by the number of their data set."""
        found = self.near_duplicates.filter(self.near_duplicates["is_superfluous"])
        numbers = found["data_set"].to_numpy()
        ids = found["record_id"].combine_chunks()
        return {int(number): ids.filter(pa.array(numbers == number)) for number in np.unique(numbers)}

    def _leaves_out(self, shard: Shard) -> pa.Array | None:
        """Return the ids that are left out of a shard's records; None: none."""
        assert isinstance(shard, _SetShard)
        return self._left_out.get(shard.data_set) if shard.split == _TRAIN else None

    @property
    def ref(self) -> str:
        """The references of the data sets, joined."""
        return str(self.reference)

    @property
    def data_sets(self) -> tuple[DatasetVersion, ...]:
        """The versions or views that are joined."""
        return tuple(one.version for one in self._sets)

    @property
    def is_joined(self) -> bool:
        """True."""
        return True

    @property
    def is_whole(self) -> bool:
        """False: the records are not those of one version."""
        return False

    def knows_classes(self, number: int) -> list[bool]:
        """Return for each class whether it is known of a data set's images if they show it."""
        if self.reference.missing == "absent":
            return [True] * len(self.manifest.classes)
        return self.has_classes(number)

    def has_classes(self, number: int) -> list[bool]:
        """Return for each class whether a data set has it."""
        own = set(self._sets[number].numbers.tolist())
        return [label in own for label in range(len(self.manifest.classes))]

    def why_not_joined(self, name: str) -> str | None:
        """Say how a feature, or one that is read with it, differs between data sets; None: it does not."""
        group = next((group for group in SHAPE_GROUPS if name in group), {name})
        for member in (name, *sorted(group - {name})):
            found = {}
            for one in self.data_sets:
                features = (each for each in one.manifest.extra_features if each.name == member)
                found[one.ref] = next(map(_in_words, features), None)
            if len(set(found.values())) > 1:
                return "; ".join(f"{ref} has {words or 'none'}" for ref, words in found.items())
        return None

    @property
    def manifest_sha256(self) -> str:
        """The SHA-256 of those of all manifests."""
        return digest_of([one.manifest_sha256 for one in self.data_sets], length=64)

    def describe_view(self) -> dict[str, Any]:
        """The part of a command's result about the data sets, JSON-able."""
        return {"data_sets": [one.ref for one in self.data_sets], "joined": self.ref}

    def query(self, text: str) -> DatasetVersion:
        """Refuse: each data set has columns of its own."""
        raise UsageError(
            f"{self.ref} cannot be queried as a whole",
            "put the query behind each data set: name@3?width > 800",
        )

    scan = query  # type: ignore[assignment]

    def shard_of(self, shard: Shard) -> tuple[int, Shard]:
        """Return the number of a shard's data set, and the shard by its paths there."""
        assert isinstance(shard, _SetShard)
        folder = f"{self._sets[shard.data_set].version.name}/"
        paths = {name: getattr(shard, name).removeprefix(folder) for name in ("path", "index_path")}
        return shard.data_set, shard.model_copy(update=paths)

    def data_set_of(self, shard: Shard) -> DatasetVersion:
        """Return the version or view whose records a shard has."""
        return self._sets[self.shard_of(shard)[0]].version

    def view_columns(self, shard: Shard) -> list[str]:
        """Return the columns of a shard's index that select its records."""
        number, own = self.shard_of(shard)
        more = [] if self._leaves_out(shard) is None else ["id"]
        return [*self._sets[number].version.view_columns(own), *more]

    def rows(self, shard: Shard, columns: Sequence[str] | None = None) -> pa.Table:
        """Columns of the index of a shard, with the numbers that classes have here."""
        number, own = self.shard_of(shard)
        wanted = columns
        if columns is not None and self._leaves_out(shard) is not None:
            wanted = list(dict.fromkeys([*columns, "id"]))
        rows = self._kept(shard, self._sets[number].version.rows(own, wanted))
        if wanted is not columns and columns is not None:
            rows = rows.select([name for name in columns if name in rows.column_names])
        return self._renumbered(number, rows)

    def select(self, shard: Shard, index: pa.Table) -> pa.Table:
        """Those rows of a shard's index whose records are read, with the numbers that classes have here."""
        number, own = self.shard_of(shard)
        return self._renumbered(number, self._kept(shard, self._sets[number].version.select(own, index)))

    def _kept(self, shard: Shard, rows: pa.Table) -> pa.Table:
        left_out = self._leaves_out(shard)
        if left_out is None:
            return rows
        import pyarrow.compute as pc  # with it a first batch comes later

        return rows.filter(pc.invert(pc.is_in(rows["id"], left_out)))

    def joined_label(self, number: int, label: int) -> int:
        """Return the number that a class of a data set has here; -1 stays.

        Raises:
            CorruptDataError: the data set has no such class.
        """
        numbers = self._sets[number].numbers
        if not -1 <= label < numbers.size - 1:
            raise CorruptDataError(f"the label {label} is none of {numbers.size - 1} classes")
        return int(numbers[label])

    def _renumbered(self, number: int, rows: pa.Table) -> pa.Table:
        one = self._sets[number]
        if one.keeps_numbers:
            return rows
        for name in {"label", LABELS, OBJECT_LABELS}.intersection(rows.column_names):
            column = rows[name].combine_chunks()
            column = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
            values = column.flatten() if name != "label" else column
            mapped = pa.array(one.numbers[values.to_numpy(zero_copy_only=False)], values.type)
            if name != "label":
                lengths = column.value_lengths().fill_null(0).to_numpy()
                if name == LABELS and one.joins_numbers:
                    mapped, lengths = _each_once(mapped, lengths)
                offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
                mapped = pa.ListArray.from_arrays(offsets, mapped, type=column.type, mask=column.is_null())
            rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), mapped)
        return rows

    def count_classes(self, split: str) -> dict[str, int]:
        """Class name -> number of the records of a split."""
        counts: Counter[str] = Counter()
        for shard in self.shards(split):
            counts.update(class_counts_of(self.rows(shard, ["label", LABELS]), self.manifest.classes))
        return {name: counts[name] for name in self.manifest.classes if counts[name]}

    def num_examples(self, split: str) -> int:
        """The number of the records of a split."""
        if split == _TRAIN and self._left_out:
            return sum(self.rows(shard, ["id"]).num_rows for shard in self.shards(split))
        given = zip(self.reference.parts, self.data_sets, strict=True)
        return sum(one.num_examples(split) for part, one in given if part.has(split))


def _each_once(values: pa.Array, lengths: npt.NDArray[Any]) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return the values of lists without repeats within a list, and the new lengths of the lists."""
    pairs = np.stack([np.repeat(np.arange(len(lengths)), lengths), values.to_numpy()])
    rows, kept = np.unique(pairs, axis=1)
    return pa.array(kept, values.type), np.bincount(rows, minlength=len(lengths))


def _renamed(version: DatasetVersion, names: Mapping[str, str]) -> list[str]:
    return [names.get(name, name) for name in version.manifest.classes]


def _joined_classes(versions: Sequence[DatasetVersion], names: Mapping[str, str]) -> list[str]:
    """Return the classes of all versions in order of first appearance, under the names of the map."""
    own = [name for version in versions for name in version.manifest.classes]
    for name in names:
        if name not in own:
            raise UsageError(
                f"classes has {name!r}, which is no class of the data sets", near_miss(name, own)
            )
    return list(dict.fromkeys(name for version in versions for name in _renamed(version, names)))


def _check_once(versions: Sequence[DatasetVersion]) -> None:
    """Check that no data set is named twice: results name each by its reference.

    Raises:
        UsageError: one is.
    """
    (ref, times), *_ = Counter(one.ref for one in versions).most_common(1)
    if times > 1:
        raise UsageError(
            f"{ref} is named {times} times",
            "name it once; data.mixture_weights gives it a larger share, and a query behind each "
            f"({ref.partition('?')[0]}?width > 800) makes two of it",
        )


def _check_alike(versions: Sequence[DatasetVersion]) -> None:
    """Check that the labels and images of versions can stand in one batch.

    Raises:
        DataError: they cannot.
    """
    first, *others = versions
    known = _facts(first)
    for other in others:
        for (what, one), (_, another) in zip(known, _facts(other), strict=True):
            if one != another:
                raise DataError(
                    f"{what} of {first.ref} are {one}, those of {other.ref} {another}: no batch has both",
                    "prepare one of them again like the other",
                )


def _facts(version: DatasetVersion) -> list[tuple[str, str]]:
    """Return what versions that are joined must have in common, in words."""
    manifest, samples = version.manifest, version.manifest.samples
    numbers = [*manifest.label_names] if manifest.label_kind == "targets" else []
    of_pixels = manifest.classes if manifest.label_kind == "mask" else []
    has_boxes = any(feature.name == BOXES for feature in manifest.extra_features)
    return [
        ("labels", WORDS[manifest.label_kind]),
        ("objects", "boxes" if has_boxes else "none"),
        ("targets", ", ".join(numbers) or "none"),
        ("classes of masks", ", ".join(of_pixels) or "none"),
        ("images", "uint8 with 1 or 3 channels" if samples.is_common else str(samples)),
        ("pixels of stored images", "encoded" if manifest.image_encoding in _DECODED_ALIKE else "raw"),
    ]


def _manifest(reference: JoinedReference, versions: Sequence[DatasetVersion], classes: list[str]) -> Manifest:
    """Make the manifest of several versions."""
    first = versions[0].manifest
    shards = [
        _set_shard(number, version.name, shard, reference.classes)
        for number, (part, version) in enumerate(zip(reference.parts, versions, strict=True))
        for shard in version.manifest.shards
        if part.has(shard.split)
    ]
    stored = sum(shard.num_examples for shard in shards)
    counts = dict.fromkeys(("num_duplicates", "num_filtered", "num_quarantined"), 0)
    plans = [[one.manifest.plan_digest, one.view_digest] for one in versions]
    digest = digest_of({"plans": plans, "parts": [str(part) for part in reference.parts]})
    samples = [version.manifest.samples for version in versions]
    channels = max(one.channels for one in samples)
    image = {**first.config.get("image", {}), "channels": channels}
    joined = {
        "dataset": reference.name,
        "version": versions[0].version,
        "parent": None,
        "created_at": max(version.manifest.created_at for version in versions),
        "plan_digest": digest,
        "run_digest": digest,
        "source": "; ".join(version.manifest.source for version in versions),
        "source_digest": digest,
        "classes": classes,
        "config": {**first.config, "image": image},
        "extra_features": _common_features(versions),
        "shards": shards,
        "inputs": [],
        "near_duplicates": None,
        "accounting": Accounting(num_inputs=stored, num_records=stored, **counts),
        "splits": summarise_splits(shards),
        "statistics": _statistics(reference, versions),
        "quality": {},  # each has limits of its own
        "report": None,
        "report_sha256": None,
        "label_edits": None,
    }
    return first.model_copy(update=joined)


def _set_shard(number: int, folder: str, shard: Shard, names: Mapping[str, str]) -> _SetShard:
    counts: Counter[str] = Counter()
    for name, count in shard.class_counts.items():
        counts[names.get(name, name)] += count
    found = {**shard.model_dump(), "class_counts": dict(counts), "data_set": number}
    return _SetShard(**{
        **found, "path": f"{folder}/{shard.path}", "index_path": f"{folder}/{shard.index_path}"
    })  # fmt: skip


def _common_features(versions: Sequence[DatasetVersion]) -> list[Feature]:
    """Return the features that all versions have alike, but for the names of their columns.

    Shapes of objects of which one feature differs, such as the names of key points, are left out whole.
    """
    described = [{each.name: _alike(each) for each in one.manifest.extra_features} for one in versions]
    kept = {name for name, facts in described[0].items() if all(one.get(name) == facts for one in described)}
    for group in SHAPE_GROUPS:
        kept -= group if not group <= kept else frozenset()
    features = versions[0].manifest.extra_features
    return [each for each in features if each.name in kept or each.name == TARGETS]


def _alike(feature: Feature) -> tuple[Any, ...]:
    """Return what a feature must have in common with that of another version."""
    points = feature.points
    return feature.arrow_type, feature.length, points and (points.names, points.partners)


def _in_words(feature: Feature) -> str:
    """Return what ``_alike`` compares, for people."""
    if feature.points is not None:
        names, partners = feature.points.names, feature.points.partners
        swapped = [f"{names[one]}-{names[other]}" for one, other in enumerate(partners or ()) if one < other]
        mirrored = "no mirror" if partners is None else f"a mirror swaps {', '.join(swapped) or 'none'}"
        return f"the points {', '.join(names)} ({mirrored})"
    return f"{feature.arrow_type}" + ("" if feature.length is None else f" of {feature.length} values")


def _statistics(reference: JoinedReference, versions: Sequence[DatasetVersion]) -> dict[str, SplitStatistics]:
    """Return the pixel statistics of all images of a split; none where a version has none."""
    found = {}
    for split in versions[0].manifest.statistics:
        given = zip(reference.parts, versions, strict=True)
        measured = [
            one.manifest.statistics[split].pixels if split in one.manifest.statistics else None
            for part, one in given
            if part.has(split) and one.manifest.splits.get(split)
        ]
        known = [one for one in measured if one is not None]
        if known and len(known) == len(measured):
            found[split] = SplitStatistics(pixels=_pooled(known))
    return found


def _pooled(measured: Sequence[ChannelStatistics]) -> ChannelStatistics:
    """Return mean and deviation of the pixels of several sets. Grey counts as three equal channels."""
    channels = max(len(one.mean) for one in measured)
    weights = np.array([one.num_pixels for one in measured], np.float64)
    weights /= weights.sum()
    means, stds = (
        np.array([np.broadcast_to(getattr(one, name), channels) for one in measured], np.float64)
        for name in ("mean", "std")
    )
    mean = weights @ means
    std = np.sqrt(weights @ (stds**2 + (means - mean) ** 2))
    total = sum(one.num_pixels for one in measured)
    return ChannelStatistics(num_pixels=total, mean=mean.tolist(), std=std.tolist())
