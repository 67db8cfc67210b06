"""Images in folders named after their classes.

Two layouts are told apart by the names of the top folders::

    root/<class>/...                                the splits are made here
    root/{train,validation,test}/<class>/...        the splits are given

All files below a class folder, however deep, belong to that class. A file outside every class folder has no
label and is quarantined with the reason "no_class".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa

from beam_jobs.config import PrepareConfig
from beam_jobs.schemas import LISTING_SCHEMA, NO_CLASS, OTHER_CLASS, Status
from beam_jobs.sources.class_names import look_alikes, quoted, wanted_classes
from beam_jobs.sources.folder import SourceFolder
from beam_jobs.sources.ignore import IgnorePatterns
from beam_jobs.sources.listing import Listing, rows_of_files
from beam_jobs.sources.walking import SPLIT_OF_FOLDER, FoundFile
from infra.errors import NotFoundError, UsageError
from infra.format.contract import SPLITS

_CHUNK_ROWS = 2048  # files that are Python values at a time


@dataclass
class _TopFolder:
    """Contents of a folder directly below the root, without ignored files."""

    num_direct: int = 0
    subfolders: set[str] = field(default_factory=set)


@dataclass
class _Shape:
    """Contents of the root, without ignored files: enough to recognise the layout."""

    num_files: int = 0
    num_ignored: int = 0
    num_direct: int = 0
    tops: dict[str, _TopFolder] = field(default_factory=dict)

    def add(self, file: FoundFile) -> None:
        if file.ignored_by is not None:
            self.num_ignored += 1
            return
        self.num_files += 1
        parts = file.uri.split("/", 2)
        if len(parts) == 1:
            self.num_direct += 1
            return
        top = self.tops.setdefault(parts[0], _TopFolder())
        if len(parts) > 2:
            top.subfolders.add(parts[1])
        elif parts[1]:  # else this is the top folder itself, which cannot be listed
            top.num_direct += 1


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder with its label and, if given, its split.

    Raises:
        NotFoundError: there is no such folder, or no file in it.
        UsageError: the folder has no classes, or two layouts at once.
        ConfigError: ``filter.classes`` names a class that is not there.
    """
    shape = _Shape()
    walk = folder.walk(IgnorePatterns(config.filter.ignore), splits_on_top=config.source.layout != "classes")
    chunks = list(_chunks(walk, shape))
    if shape.num_files == 0:
        files = "1 file" if shape.num_ignored == 1 else f"{shape.num_ignored:,} files"
        seen = f"only {files} that filter.ignore names" if shape.num_ignored else "no file"
        raise NotFoundError(
            f"source {folder.uri} holds {seen}", "give a folder with a subfolder of images for each class"
        )
    if config.source.label_kind == "none":
        splits = _given_splits(shape, config, folder.uri, needs_classes=False)
        unlabelled = [_split(chunk, splits) for chunk in chunks]
        return Listing(pa.Table.from_batches(unlabelled, LISTING_SCHEMA), walk.warnings())
    splits = _given_splits(shape, config, folder.uri)
    classes = _classes(shape, splits)
    wanted = wanted_classes(classes, config)
    table = pa.Table.from_batches([_label(chunk, splits, wanted) for chunk in chunks], LISTING_SCHEMA)
    return Listing(table, walk.warnings() + _warnings(shape, splits, classes))


def _chunks(files: Iterable[FoundFile], shape: _Shape) -> Iterator[pa.RecordBatch]:
    """Yield the files as rows without label and split, and add each to ``shape``."""
    files = iter(files)
    while chunk := list(islice(files, _CHUNK_ROWS)):
        for file in chunk:
            shape.add(file)
        yield rows_of_files(chunk)


def _given_splits(
    shape: _Shape, config: PrepareConfig, location: str, *, needs_classes: bool = True
) -> dict[str, str] | None:
    """Return top folder -> split, or None if the top folders are classes, or folders without a meaning."""
    layout = config.source.layout
    tops = sorted(shape.tops)
    if not tops and not needs_classes:
        return None
    if not tops:
        raise UsageError(
            f"source {location} has no class folders: its {shape.num_direct} files lie directly in it",
            "put the images of each class into a folder of its own: <source>/<class>/image.jpg; or say "
            "--set source.kind=table if a table names their labels, or source.labels=none if they have none",
        )
    named = {top: SPLIT_OF_FOLDER[top.lower()] for top in tops if top.lower() in SPLIT_OF_FOLDER}
    if layout == "classes" or (layout == "auto" and not named):
        return None
    if len(named) < len(tops):
        strangers = [top for top in tops if top not in named]
        raise UsageError(
            f"source {location} mixes two layouts: {quoted(list(named))} beside {quoted(strangers)}"
            if named
            else f"source {location} has no split folders: {quoted(strangers)}",
            "take the folders that are no splits out, or say --set source.layout=classes if all are classes",
        )
    if needs_classes and not any(shape.tops[top].subfolders for top in tops):
        raise UsageError(
            f"the split folders {quoted(tops)} of {location} hold images, but no class folders",
            "put them into <source>/<split>/<class>/, or say --set source.layout=classes if they are classes",
        )
    for split in set(named.values()):
        twice = [top for top in tops if named[top] == split]
        if len(twice) > 1:
            raise UsageError(f"the folders {quoted(twice)} of {location} are both {split}", "merge them")
    return named


def _classes(shape: _Shape, splits: dict[str, str] | None) -> list[str]:
    if splits is None:
        return sorted(shape.tops)
    return sorted({name for top in shape.tops.values() for name in top.subfolders})


def _label(
    batch: pa.RecordBatch, splits: dict[str, str] | None, wanted: frozenset[str] | None
) -> pa.RecordBatch:
    """Fill in label and split, and settle the files that have no class or one that is not wanted."""
    columns = batch.to_pydict()
    depth = 1 if splits is None else 2
    labels, given, status = columns["label"], columns["split"], columns["status"]
    reasons, messages = columns["reason"], columns["message"]
    for at, uri in enumerate(columns["uri"]):
        parts = uri.split("/", depth)
        if splits is not None and len(parts) > 1:
            given[at] = splits.get(parts[0])  # none for a folder with nothing but ignored files
        label = parts[depth - 1] if len(parts) > depth else None
        labels[at] = label
        if status[at] != Status.TO_READ:
            continue
        if label is None:
            status[at], reasons[at], messages[at] = Status.QUARANTINED, NO_CLASS, "it lies in no class folder"
        elif wanted is not None and label not in wanted:
            status[at], reasons[at] = Status.FILTERED, OTHER_CLASS
            messages[at] = "filter.classes does not name its class"
    return pa.RecordBatch.from_pydict(columns, schema=LISTING_SCHEMA)


def _split(batch: pa.RecordBatch, splits: dict[str, str] | None) -> pa.RecordBatch:
    """Fill in the split of images without labels."""
    if splits is None:
        return batch
    columns = batch.to_pydict()
    columns["split"] = [splits.get(uri.split("/", 1)[0]) if "/" in uri else None for uri in columns["uri"]]
    return pa.RecordBatch.from_pydict(columns, schema=LISTING_SCHEMA)


def _warnings(shape: _Shape, splits: dict[str, str] | None, classes: list[str]) -> list[str]:
    warnings = []
    if len(classes) == 1:
        only = shape.tops.get(classes[0])
        hint = ""
        if splits is None and only is not None and not only.num_direct and len(only.subfolders) > 1:
            below = quoted(sorted(only.subfolders))
            hint = f"; if its folders {below} are the classes, give {classes[0]!r} as source"
        warnings.append(f"the source has a single class, {classes[0]!r}{hint}")
    if splits is not None and (missing := [name for name in SPLITS if name not in splits.values()]):
        warnings.append(f"the source gives its splits, but no {' and no '.join(missing)}")
    return warnings + look_alikes(classes, "merge their folders")
