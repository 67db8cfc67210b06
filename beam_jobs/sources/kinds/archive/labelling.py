"""The label and split of each member of the archives."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa

from beam_jobs.config import PrepareConfig
from beam_jobs.schemas import NO_LABEL, OTHER_CLASS, SIDECAR, Status
from beam_jobs.sources.classes.folders import (
    class_names,
    given_splits,
    label_by_folder,
    layout_warnings,
    split_by_folder,
)
from beam_jobs.sources.classes.names import look_alikes, wanted_classes
from beam_jobs.sources.kinds.archive.layouts import Layout, shape_of
from beam_jobs.sources.kinds.archive.listing import ListedArchive, sample_key

_REMEDY = (
    "put the images of each class into a folder of its own in the archive, or into an archive of its own; or "
    "give sidecars with labels as WebDataset does (docs/archives.md)"
)
_NO_CLASSES: frozenset[str] = frozenset({""})
_IMAGE_ENDINGS = frozenset({
    "jpg", "jpeg", "jpe", "jfif", "png", "webp", "gif", "bmp", "tif", "tiff", "avif", "heic", "heif",
    "ppm", "pgm", "pbm", "jp2",
})  # fmt: skip


def labelled(
    archives: Sequence[ListedArchive], layout: Layout, config: PrepareConfig, location: str
) -> tuple[list[pa.RecordBatch], list[str]]:
    """Fill in labels and splits.

    Args:
        archives: those that have members.
        layout: of all of them.
        config: of the run.
        location: of the source, for people.

    Returns:
        The rows (MEMBER_LISTING_SCHEMA), and warnings.

    Raises:
        UsageError: the members have no classes. ConfigError: ``filter.classes`` names a class that is not
            there.
    """
    if layout.kind == "webdataset":
        return _by_sidecars(archives, layout, config)
    shape = shape_of(layout.path(archive.uri, name) for archive in archives for name in archive.image_names())
    if config.source.label_kind == "none":
        free = given_splits(shape, config, location, _REMEDY, needs_classes=False)
        return [
            split_by_folder(batch, layout.paths(archive.uri, archive.names(batch)), free)
            for archive in archives
            for batch in archive.batches
        ], []
    splits = given_splits(shape, config, location, _REMEDY)
    classes = class_names(shape, splits)
    wanted = wanted_classes(classes, config)
    rows = []
    for archive in archives:
        for batch in archive.batches:
            paths = layout.paths(archive.uri, archive.names(batch))
            rows.append(label_by_folder(batch, paths, splits, wanted))
    return rows, layout_warnings(shape, splits, classes)


def _by_sidecars(
    archives: Sequence[ListedArchive], layout: Layout, config: PrepareConfig
) -> tuple[list[pa.RecordBatch], list[str]]:
    has_class = config.source.label_kind == "class"
    names = config.source.archive.class_names
    for archive in archives:
        archive.labels = {
            key: label if key in archive.named else _named(label, names)
            for key, label in archive.labels.items()
        }
    if not has_class:
        archives = [replace(archive, labels={}) for archive in archives]
    classes = sorted({label for archive in archives for label in archive.labels.values()})
    wanted = wanted_classes(classes, config)
    rows = []
    for archive in archives:
        samples = {sample_key(name) for name in archive.image_names() if is_image(name)}
        split = None if layout.splits is None else layout.splits[archive.uri]
        own = wanted if has_class else _NO_CLASSES
        rows += [_label_by_key(batch, archive, samples, split, own) for batch in archive.batches]
    single = [f"the sidecars name a single class, {classes[0]!r}"] if len(classes) == 1 else []
    return rows, single + look_alikes(classes, "correct the sidecars")


def _named(label: str, names: Sequence[str]) -> str:
    """Return the name of a class that is given as a number; the number itself if it has no name."""
    is_number = label.isascii() and label.isdigit() and len(label) < 10
    return names[int(label)] if is_number and int(label) < len(names) else label


def is_image(name: str) -> bool:
    """Tell whether a member is an image, by its ending."""
    return name.rpartition(".")[2].lower() in _IMAGE_ENDINGS


def _label_by_key(
    batch: pa.RecordBatch,
    archive: ListedArchive,
    samples: Collection[str],
    split: str | None,
    wanted: frozenset[str] | None,
) -> pa.RecordBatch:
    """Fill in the labels that sidecars give; ``samples`` are the keys of those that have an image.

    With ``_NO_CLASSES`` as ``wanted`` the images have labels of another kind, or none.
    """
    columns = batch.to_pydict()
    labels, status = columns["label"], columns["status"]
    reasons, messages = columns["reason"], columns["message"]
    for at, uri in enumerate(columns["uri"]):
        name = archive.name_of(uri)
        if status[at] == Status.QUARANTINED:
            continue
        if not is_image(name) and (status[at] == Status.TO_READ or sample_key(name) in samples):
            status[at], reasons[at] = Status.FILTERED, SIDECAR
            messages[at] = "it is no image, and belongs to the sample of the same name"
        if status[at] != Status.TO_READ:
            continue
        labels[at] = label = archive.labels.get(sample_key(name))
        columns["split"][at] = split
        if wanted is _NO_CLASSES:
            continue
        if label is None:
            status[at], reasons[at] = Status.QUARANTINED, NO_LABEL
            messages[at] = "no .cls and no .json of the same name gives it a label"
        elif wanted is not None and label not in wanted:
            status[at], reasons[at] = Status.FILTERED, OTHER_CLASS
            messages[at] = "filter.classes does not name its class"
    return pa.RecordBatch.from_pydict(columns, schema=batch.schema)
