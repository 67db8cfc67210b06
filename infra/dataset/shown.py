"""A version as a notebook shows it: splits, classes, and a contact sheet of some records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import chain, islice, zip_longest
from typing import Any

from markupsafe import Markup

from shardmill.infra.dataset.thumbnails import picture_uri, read_small
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ShardmillError, UnusableInput
from shardmill.infra.format.contract import Shard
from shardmill.infra.format.known_features import BOXES, LABELS, NO_CLASS, TARGETS, WORDS
from shardmill.infra.html.notebook import Figure, block, contact_sheet, count_table, paragraph
from shardmill.infra.readable import counted, first_of, readable_bytes, readable_figure
from shardmill.infra.storage.range_reader import RangeReader

_PICTURES, _SIDE = 12, 96  # pictures, and the side of each (pixels)
_SHARDS, _ROWS = 4, 4096  # indexes that are read to find them, and rows of each that are looked at
_CLASSES = 12  # rows of the table
_NAMES = 3  # classes named below a picture


def version_html(version: DatasetVersion) -> str:
    """Return a version as HTML. What cannot be read is said in words: this never raises."""
    manifest, shards = version.manifest, version.manifest.shards
    samples = manifest.samples
    has_boxes = any(feature.name == BOXES for feature in manifest.extra_features)
    facts = [
        "objects in images" if has_boxes else WORDS[manifest.label_kind],
        f"images as {manifest.image_encoding}" + ("" if samples.is_common else f", {samples}"),
    ]
    if version.view is None:
        size = readable_bytes(sum(shard.num_bytes for shard in shards))
        facts += [f"{counted(len(shards), 'shard')}, {size}", f"published {manifest.created_at[:10]}"]
    return block(version.ref, facts, [_or_words(part, version) for part in (_counts, _sheet)])


def _or_words(part: Callable[[DatasetVersion], Markup], version: DatasetVersion) -> Markup:
    try:
        return part(version)
    except Exception as error:  # noqa: BLE001  the last value of a cell is shown unasked: it may not fail
        return paragraph(_said(error))


def _said(error: Exception) -> str:
    told = error.message if isinstance(error, ShardmillError | UnusableInput) else str(error)
    return told or type(error).__name__


def _counts(version: DatasetVersion) -> Markup:
    of_split = {split: version.num_examples(split) for split in version.manifest.splits}
    totals = {split: number for split, number in of_split.items() if number}
    if not totals:
        return paragraph("no records")
    counts = {split: version.count_classes(split) for split in totals}
    of_class = {name: sum(of.get(name, 0) for of in counts.values()) for name in version.manifest.classes}
    names = sorted(of_class, key=lambda name: (-of_class[name], name))
    table = count_table(counts, names[:_CLASSES], totals)
    if not names[_CLASSES:]:
        return table
    others = counted(len(names) - _CLASSES, "other class", "other classes")
    return table + paragraph(f"and {others}; the smallest, {names[-1]}, has {of_class[names[-1]]:,}")


def _sheet(version: DatasetVersion) -> Markup:
    figures = [*_figures(version)]
    return contact_sheet(figures, _SIDE) if figures else Markup("")


def _figures(version: DatasetVersion) -> Iterator[Figure]:
    """Yield the pictures of a few records, or words in their places."""
    by_class: dict[Any, list[tuple[Shard, Mapping[str, Any]]]] = {}
    for shard in _first_shards(version):
        try:
            columns = ["offset_bytes", "length_bytes", "label", LABELS, TARGETS]
            rows = version.rows(shard, columns)
        except Exception as error:  # noqa: BLE001  one bad index costs itself
            yield Figure(None, (0, 0), (f"{shard.index_path}: {_said(error)}", shard.split))
            continue
        for row in _a_few_of_each(rows):
            by_class.setdefault(_class_of(row), []).append((shard, row))
    in_turn = chain.from_iterable(zip_longest(*(by_class[label] for label in sorted(by_class))))
    with closing(RangeReader(version.storage)) as reader:
        for shard, row in islice(filter(None, in_turn), _PICTURES):
            yield _figure(version, reader, shard, row)


def _first_shards(version: DatasetVersion) -> list[Shard]:
    """Return the first shard of each split, then the second, and so on."""
    of_split = [version.shards(split) for split in version.manifest.splits]
    return [shard for turn in zip_longest(*of_split) for shard in turn if shard is not None][:_SHARDS]


def _a_few_of_each(rows: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the first rows of each class."""
    seen: dict[Any, int] = {}
    for row in rows.slice(0, _ROWS).to_pylist():
        label = _class_of(row)
        seen[label] = seen.get(label, 0) + 1
        if seen[label] <= _PICTURES:
            yield row


def _class_of(row: Mapping[str, Any]) -> int:
    """Return the class of a record, or the first of several; -1: it has none."""
    labels = row.get(LABELS) or [NO_CLASS]
    return int(labels[0] if row["label"] == NO_CLASS else row["label"])


def _figure(version: DatasetVersion, reader: RangeReader, shard: Shard, row: Mapping[str, Any]) -> Figure:
    label = ""
    try:
        label = _words(version, row)
        _, pixels = read_small(reader, version.manifest, shard.path, row["offset_bytes"], row["length_bytes"])
        return Figure(picture_uri(pixels), pixels.shape[:2], (label, shard.split))
    except Exception as error:  # noqa: BLE001  one bad record costs itself
        return Figure(None, (0, 0), (label, f"{shard.path}: {_said(error)}"))


def _words(version: DatasetVersion, row: Mapping[str, Any]) -> str:
    names = version.manifest.label_names
    if row.get(TARGETS):
        pairs = zip(names, row[TARGETS], strict=False)
        return first_of([f"{name} {readable_figure(value)}" for name, value in pairs], _NAMES)
    classes = [row["label"]] if row["label"] != NO_CLASS else dict.fromkeys(row.get(LABELS) or ())
    return first_of([names[number] for number in classes], _NAMES)
