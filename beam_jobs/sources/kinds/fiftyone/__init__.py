"""A dataset that FiftyOne exported: ``samples.json``, or ``labels.json`` of image datasets, beside ``data/``.

https://docs.voxel51.com/user_guide/export_datasets.html. One field of the samples holds the labels: objects
(Detections, Polylines, Keypoints), one class an image (Classification) or several (Classifications). Tags
that name a split give it.

    samples   the images, and the field with their labels
    labels    objects as boxes, polygons and key points
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.sources.annotations.collecting import READINGS, Annotations
from shardmill.beam_jobs.sources.annotations.features import features_of_entries
from shardmill.beam_jobs.sources.annotations.listing import listing_of
from shardmill.beam_jobs.sources.annotations.reading import AnnotationTable, find_annotations
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import IgnorePatterns
from shardmill.beam_jobs.sources.kinds.fiftyone.labels import add_objects, classes_of, name_points
from shardmill.beam_jobs.sources.kinds.fiftyone.samples import (
    FILES,
    KINDS,
    Samples,
    first_samples,
    read_samples,
)
from shardmill.beam_jobs.sources.kinds.table import list_named, listed_files
from shardmill.beam_jobs.sources.kinds.table.columns import ROWS_SCHEMA
from shardmill.beam_jobs.sources.kinds.table.typed.labels import with_label_lists
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised, cli_for
from shardmill.infra.errors import ConfigError

_HEAD_BYTES = 1 << 20


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder, with the labels that the exported samples give to their images.

    Raises:
        NotFoundError: there is no such folder or file, or no image that they name.
        ConfigError: the file is no export, or which field holds the labels cannot be told.
    """
    source = config.source
    tables = find_annotations(folder, source.objects)
    read = [read_samples(table, source.columns.label) for table in tables]
    kind = _kind_of(read, source)
    found = Annotations()
    for samples in read:
        if kind == "objects":
            name_points(found, samples)
        for sample in samples.images:
            number = found.add_image(sample.image)
            if kind == "objects":
                add_objects(found, number, sample)
    entries = [sample.entry for samples in read for sample in samples.images]
    features_of_entries(found, entries, source.columns.further, {key for entry in entries for key in entry})
    walk = folder.walk(IgnorePatterns(config.filter.ignore), splits_on_top=False)
    files = listed_files(walk, [table.table.uri for table in tables if table.table.uri is not None])
    if kind == "objects":
        found.warnings[:0] = walk.warnings()
        return listing_of(found, files, config)
    return _list_classes(found, read, tables, files, config, walk.warnings())


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise exported samples by the classes of their fields; several fields of labels are asked about."""
    for uri in glance.ending_in(".json"):
        if uri.rpartition("/")[2] not in FILES or not glance.images:
            continue
        samples = first_samples(glance.head(uri, _HEAD_BYTES), settings.columns.label)
        if samples is not None and (uri.endswith(FILES[0]) or _images_of(uri, glance)):
            return _recognised(uri, samples, glance)
    return None


def _recognised(uri: str, samples: Samples, glance: Glance) -> Recognised:
    """Return what a file of samples is, or its fields if several hold labels."""
    above = uri.rpartition("/")[0]
    folders = {image.rpartition("/")[0] for image in _images_of(uri, glance)}

    def settings(name: str) -> dict[str, Any]:
        labels = {"labels": "class"} if KINDS[samples.fields[name]] == "class" else {}
        columns = {"columns": {"label": name}} if name else {}
        return {"objects": {"annotations": ({"file": uri, "images": above},)}, **labels, **columns}

    why, fields = f"{uri} holds samples as FiftyOne exports them", list(samples.fields)
    if len(fields) == 1:
        why += f", with labels in {fields[0]!r}" if fields[0] else ""
        return Recognised(why, settings(fields[0]), is_certain=True, image_folders=folders)
    readings = [cli_for("fiftyone", settings(name)) for name in fields[:READINGS]]
    readings = readings or [f"{cli_for('image_folder', {'labels': 'none'})}: no field holds labels"]
    why += f", whose fields {', '.join(fields)} hold labels" if fields else ", without labels"
    return Recognised(why, is_certain=True, image_folders=folders, readings=readings)


def _images_of(uri: str, glance: Glance) -> list[str]:
    """Return the images in the folder data beside a file of samples."""
    place = f"{uri.rpartition('/')[0]}/data/".lstrip("/")
    return [image for image in glance.images if image.startswith(place)]


def _kind_of(read: Sequence[Samples], source: SourceConfig) -> str:
    """Return what the samples hold: objects, class or several.

    Raises:
        ConfigError: source.labels says something else.
    """
    kinds = {samples.kind for samples in read}
    if len(kinds) > 1:
        raise ConfigError("the files of source.objects.annotations hold labels of several kinds", "name one")
    (kind,) = kinds
    fits = {"objects": ("multi", "mask"), "several": ("multi",), "class": ("class",)}[kind]
    if source.label_kind not in fits:
        words = {"objects": "objects", "several": "several classes an image", "class": "one class an image"}
        raise ConfigError(
            f"the samples have {words[kind]}, and source.labels = {source.label_kind!r}",
            f"say --set source.labels={fits[0]}; --source-kind auto sets it",
        )
    return kind


def _list_classes(
    found: Annotations,
    read: Sequence[Samples],
    tables: Sequence[AnnotationTable],
    files: pa.Table,
    config: PrepareConfig,
    warnings: Sequence[str],
) -> Listing:
    """Return the listing of images with classes."""
    numbered = [
        (number, at, sample)
        for number, samples in enumerate(read)
        for at, sample in enumerate(samples.images, 1)
    ]
    labels = [classes_of(sample.label) for _, _, sample in numbered]
    has_several = config.source.label_kind == "multi"
    columns = {
        "table": [number for number, _, _ in numbered],
        "number": [at for _, at, _ in numbered],
        "path": [image.path for image in found.images],
        "label": [None if has_several or not names else names[0] for names in labels],
        "split": [image.split for image in found.images],
        "group": [None] * len(numbered),
        "fault": [image.fault for image in found.images],
    }
    raw = pa.table(columns, ROWS_SCHEMA)
    if has_several:
        raw = with_label_lists(raw, pa.array(labels, pa.list_(pa.string())), None)
    if found.features is not None:
        for field, values in zip(found.features.schema, found.features.columns, strict=True):
            raw = raw.append_column(field, values)
    named = [table.table for table in tables]
    return list_named(raw, raw["path"], named, files, config, [*warnings, *found.warnings])
