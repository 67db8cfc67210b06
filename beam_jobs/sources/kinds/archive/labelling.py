"""The label and split of each member of the archives."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from shardmill.beam_jobs.config import ColumnsConfig, PrepareConfig
from shardmill.beam_jobs.reasons import (
    CONTRADICTION,
    DROPPED_LABEL,
    FILTER_REASONS,
    NO_LABEL,
    OTHER_CLASS,
    OTHER_FILE,
    SIDECAR,
)
from shardmill.beam_jobs.schemas import Status
from shardmill.beam_jobs.sources.class_folders import (
    class_names,
    given_splits,
    label_by_folder,
    layout_warnings,
    split_by_folder,
)
from shardmill.beam_jobs.sources.class_names import (
    ClassNumbers,
    is_number,
    look_alikes,
    name_labels,
    no_classes,
    quoted,
    wanted_classes,
)
from shardmill.beam_jobs.sources.kinds.archive.layouts import Layout, shape_of
from shardmill.beam_jobs.sources.kinds.archive.listing import ListedArchive
from shardmill.beam_jobs.sources.kinds.archive.members import LABEL_SIDECARS
from shardmill.beam_jobs.sources.kinds.archive.sidecar_values import Sidecars, sample_key
from shardmill.beam_jobs.sources.masks import is_mask_name
from shardmill.infra.errors import ConfigError, UsageError

_REMEDY = (
    "put the images of each class into a folder of its own in the archive, or into an archive of its own; or "
    "give sidecars with labels as WebDataset does (docs/archives.md)"
)
_SIDECAR_ENDINGS = frozenset({*LABEL_SIDECARS, "txt"})
_IMAGE_ENDINGS = frozenset({
    "jpg", "jpeg", "jpe", "jfif", "png", "webp", "gif", "bmp", "tif", "tiff", "avif", "heic", "heif",
    "ppm", "pgm", "pbm", "jp2", "dcm", "dicom",
})  # fmt: skip


def labelled(
    archives: Sequence[ListedArchive],
    layout: Layout,
    config: PrepareConfig,
    location: str,
    names: ClassNumbers,
) -> tuple[list[pa.RecordBatch], list[str]]:
    """Fill in labels and splits.

    Args:
        archives: those that have members.
        layout: one of LAYOUTS, for all archives.
        config: settings of the run.
        location: place of the source, for people.
        names: number -> name of the classes, for labels of sidecars.

    Returns:
        The rows (MEMBER_LISTING_SCHEMA), and warnings.

    Raises:
        UsageError: the members have no classes, or no sidecar has one. ConfigError: ``filter.classes``
            names a class that is not there, or settings of sidecars have no effect.
    """
    if layout.kind == "webdataset":
        return _by_sidecars(archives, layout, config, names)
    if config.source.columns.drop_labels or config.source.columns.merge_labels:
        raise ConfigError(
            "source.columns.drop_labels and merge_labels are for sidecars, and there are "
            f"{layout.described()}",
            "name the classes to keep in filter.classes",
        )
    shape = shape_of(layout.path(archive.uri, name) for archive in archives for name in archive.image_names())
    if config.source.label_kind == "none":
        free = given_splits(shape, config, location, _REMEDY, needs_classes=False)
        return [
            split_by_folder(batch, layout.paths(archive.uri, archive.names(batch)), free)
            for archive in archives
            for batch in archive.batches
        ], []
    splits = given_splits(shape, config, location, _REMEDY)
    classes = class_names(shape, splits, config, location)
    wanted = wanted_classes(classes, config)
    rows = []
    for archive in archives:
        for batch in archive.batches:
            paths = layout.paths(archive.uri, archive.names(batch))
            rows.append(label_by_folder(batch, paths, splits, wanted))
    return rows, layout_warnings(shape, splits, classes)


def _by_sidecars(
    archives: Sequence[ListedArchive], layout: Layout, config: PrepareConfig, names: ClassNumbers
) -> tuple[list[pa.RecordBatch], list[str]]:
    kind, settings = config.source.label_kind, config.source.columns
    labels = [_labels_of(archive, names, settings) for archive in archives] if kind == "class" else []
    if kind == "class" and not any(labels):
        raise UsageError(
            f"no .cls and no key {settings.label_column!r} of a .json sidecar gives an image its class",
            "name the key with --set source.columns.label=KEY; or say which labels there are: "
            "--set source.labels=multi, targets, mask (with source.masks.classes) or none",
        )
    found = {label.name for each in labels for label in each.values() if label.reason is None}
    classes = sorted(name for name in found if name is not None)
    wanted = wanted_classes(classes, config)
    rows = []
    for at, archive in enumerate(archives):
        split = None if layout.splits is None else layout.splits[archive.uri]
        own = labels[at] if kind == "class" else None
        samples = _Samples.of(archive, split, own, wanted)
        rows += [_label_by_key(batch, archive, samples) for batch in archive.batches]
    single = [f"the sidecars name a single class, {classes[0]!r}"] if len(classes) == 1 else []
    odd = no_classes(classes, "name it in source.columns.drop_labels")
    return rows, single + odd + look_alikes(classes, "name one in source.columns.merge_labels")


@dataclass(frozen=True)
class _Label:
    """The class that a sidecar gives.

    Attributes:
        name: name of the class, or None.
        reason, message: why its image is not used; None if it is.
    """

    name: str | None
    reason: str | None = None
    message: str | None = None


def _labels_of(archive: ListedArchive, names: ClassNumbers, settings: ColumnsConfig) -> dict[str, _Label]:
    """Return the label that sidecars give, by their stem."""
    texts = pa.array(list(archive.labels.values()), pa.string())
    named, faults = name_labels(texts, names)
    rows = zip(archive.labels.items(), named.to_pylist(), faults.to_pylist(), strict=True)
    found = {}
    for (key, text), name, fault in rows:
        if key in archive.named or not is_number(text):  # a name, whatever the numbers of the classes
            name, fault = text, None
        if fault is not None:
            found[key] = _Label(text, NO_LABEL, fault)
        elif name in settings.drop_labels:
            found[key] = _Label(name, DROPPED_LABEL, f"source.columns.drop_labels names {name}")
        else:
            found[key] = _Label(settings.merge_labels.get(name, name))
    return found


@dataclass(frozen=True)
class _Samples:
    """The samples of an archive.

    Attributes:
        with_image: keys of those that have an image that is no mask.
        sidecars: those with labels or values.
        labelling: those with labels.
        split: split of all of them, or None.
        labels: stem -> label; None if the images have labels of another kind, or none.
        wanted: classes to keep; None for all.
    """

    with_image: Collection[str]
    sidecars: Sidecars
    labelling: Sidecars
    split: str | None
    labels: Mapping[str, _Label] | None
    wanted: frozenset[str] | None

    @classmethod
    def of(
        cls,
        archive: ListedArchive,
        split: str | None,
        labels: Mapping[str, _Label] | None,
        wanted: frozenset[str] | None,
    ) -> _Samples:
        """Find the samples of an archive."""
        images = [name for name in archive.image_names() if is_image(name)]
        sidecars = Sidecars(archive.labels.keys() | archive.values.keys(), images)
        labelling = Sidecars(archive.labels, images)
        with_image = {sample_key(name) for name in images if not is_mask_name(name)}
        return cls(with_image, sidecars, labelling, split, labels, wanted)

    def label_of(self, name: str) -> _Label:
        """Return the label of an image, or why it has none."""
        labels = [(self.labels or {})[stem] for stem in self.labelling.of(name)]
        if not labels:
            return _Label(None, NO_LABEL, "no .cls and no .json of the same name gives it a label")
        names = sorted({str(label.name) for label in labels})
        if len(names) > 1:
            return _Label(None, CONTRADICTION, f"sidecars of its sample give it the labels {quoted(names)}")
        return labels[0]

    def role_of(self, name: str) -> tuple[str, str] | None:
        """Return reason and message of a member that is no image; None if it is to be read."""
        if is_image(name):
            is_mask = is_mask_name(name) and sample_key(name) in self.with_image
            return (SIDECAR, "it is the mask of the image of the same name") if is_mask else None
        key, ending = sample_key(name), name.rpartition(".")[2].lower()
        if key in self.with_image:
            return SIDECAR, "it is no image, and belongs to the sample of the same name"
        if ending in _SIDECAR_ENDINGS:
            return SIDECAR, "it belongs to a sample that has no image"
        if self.sidecars.of(name):
            return None  # an image of an unusual ending
        return OTHER_FILE, "its ending is not that of an image, and no sample has its name"


def is_image(name: str) -> bool:
    """Tell whether a member is an image, by its ending."""
    return name.rpartition(".")[2].lower() in _IMAGE_ENDINGS


def _label_by_key(batch: pa.RecordBatch, archive: ListedArchive, samples: _Samples) -> pa.RecordBatch:
    """Fill in the labels that sidecars give."""
    columns = batch.to_pydict()
    status, reasons, messages = columns["status"], columns["reason"], columns["message"]

    def settle(at: int, outcome: Status, reason: str, message: str | None) -> None:
        status[at], reasons[at], messages[at] = outcome, reason, message

    for at, uri in enumerate(columns["uri"]):
        name = archive.name_of(uri)
        if status[at] == Status.QUARANTINED:
            continue
        role = samples.role_of(name)
        if role is not None and (status[at] == Status.TO_READ or sample_key(name) in samples.with_image):
            settle(at, Status.FILTERED, *role)
        if status[at] != Status.TO_READ:
            continue
        columns["split"][at] = samples.split
        if samples.labels is None:
            continue
        label = samples.label_of(name)
        columns["label"][at] = label.name
        if label.reason is not None:
            lost = Status.FILTERED if label.reason in FILTER_REASONS else Status.QUARANTINED
            settle(at, lost, label.reason, label.message)
        elif samples.wanted is not None and label.name not in samples.wanted:
            settle(at, Status.FILTERED, OTHER_CLASS, "filter.classes does not name its class")
    return pa.RecordBatch.from_pydict(columns, schema=batch.schema)
