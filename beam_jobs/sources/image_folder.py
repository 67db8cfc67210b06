"""Images in folders named after their classes.

Two layouts, told apart by the names of the top folders that hold anything::

    root/<class>/...                                the splits are made here
    root/{train,validation,test}/<class>/...        the splits are given

Whatever lies below a class folder, however deep, belongs to that class. A file outside every class folder has
no label: it is quarantined with the reason "no_class".
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa

from beam_jobs.config import PrepareConfig
from beam_jobs.sources.folder import FoundFile, SourceFolder
from beam_jobs.sources.ignore import IgnorePatterns
from beam_jobs.sources.listing import LISTING_SCHEMA, Listing
from infra.contract import FILTERED, QUARANTINED
from infra.errors import ConfigError, NotFoundError, UsageError

SPLIT_OF_FOLDER = {
    "train": "train", "training": "train",
    "validation": "validation", "val": "validation", "valid": "validation", "dev": "validation",
    "eval": "validation",
    "test": "test", "testing": "test",
}  # fmt: skip

_CHUNK_ROWS = 2048  # as Python values; the rest of the listing is in Arrow tables


@dataclass
class _TopFolder:
    """What a folder directly below the root holds, ignored files apart."""

    num_direct: int = 0
    subfolders: set[str] = field(default_factory=set)


@dataclass
class _Shape:
    """What the root holds, ignored files apart: enough to tell the layout."""

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
        if len(parts) == 2:
            top.num_direct += 1
        else:
            top.subfolders.add(parts[1])


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """Every file below ``folder`` with its label and, where given, its split.

    Raises:
        NotFoundError: there is no such folder, or no file in it.
        UsageError: the folder has no classes, or two layouts at once.
        ConfigError: ``filter.classes`` names a class that is not there.
    """
    shape = _Shape()
    found = folder.files(IgnorePatterns(config.filter.ignore))
    chunks = list(_chunks(found, shape))
    if shape.num_files == 0:
        files = "1 file" if shape.num_ignored == 1 else f"{shape.num_ignored:,} files"
        seen = f"only {files} that filter.ignore names" if shape.num_ignored else "no file"
        raise NotFoundError(
            f"source {folder.uri} holds {seen}", "give a folder with a subfolder of images for each class"
        )
    splits = _given_splits(shape, config, folder.uri)
    classes = _classes(shape, splits)
    wanted = _wanted_classes(classes, config)
    table = pa.Table.from_batches([_label(chunk, splits, wanted) for chunk in chunks], LISTING_SCHEMA)
    return Listing(table, _warnings(shape, splits, classes))


def _chunks(files: Iterable[FoundFile], shape: _Shape) -> Iterator[pa.RecordBatch]:
    """The files in batches, as rows whose label and split are still unknown; ``shape`` learns of each."""
    files = iter(files)
    while chunk := list(islice(files, _CHUNK_ROWS)):
        for file in chunk:
            shape.add(file)
        faults = [file.fault if file.ignored_by is None else None for file in chunk]
        columns = {
            "uri": [file.uri for file in chunk],
            "size_bytes": [file.size_bytes for file in chunk],
            "mtime_ns": [file.mtime_ns for file in chunk],
            "label": [None] * len(chunk),
            "split": [None] * len(chunk),
            "group": [None] * len(chunk),
            "outcome": [
                FILTERED if file.ignored_by is not None else None if file.fault is None else QUARANTINED
                for file in chunk
            ],
            "reason": [
                "ignored" if file.ignored_by is not None else fault and fault.reason
                for file, fault in zip(chunk, faults, strict=True)
            ],
            "message": [
                f"the pattern {file.ignored_by!r} of filter.ignore names it"
                if file.ignored_by is not None
                else fault and fault.message
                for file, fault in zip(chunk, faults, strict=True)
            ],
        }
        yield pa.RecordBatch.from_pydict(columns, schema=LISTING_SCHEMA)


def _given_splits(shape: _Shape, config: PrepareConfig, location: str) -> dict[str, str] | None:
    """Top folder -> split, or None where the top folders are classes."""
    layout = config.source.layout
    tops = sorted(shape.tops)
    if not tops:
        raise UsageError(
            f"source {location} has no class folders: its {shape.num_direct} files lie directly in it",
            "put the images of each class into a folder of its own: <source>/<class>/image.jpg",
        )
    named = {top: SPLIT_OF_FOLDER[top.lower()] for top in tops if top.lower() in SPLIT_OF_FOLDER}
    if layout == "classes" or (layout == "auto" and not named):
        return None
    if len(named) < len(tops):
        strangers = [top for top in tops if top not in named]
        raise UsageError(
            f"source {location} mixes two layouts: {_names(list(named))} beside {_names(strangers)}"
            if named
            else f"source {location} has no split folders: {_names(strangers)}",
            "take the folders that are no splits out, or say --set source.layout=classes if all are classes",
        )
    if not any(shape.tops[top].subfolders for top in tops):
        raise UsageError(
            f"the split folders {_names(tops)} of {location} hold images, but no class folders",
            "put them into <source>/<split>/<class>/, or say --set source.layout=classes if they are classes",
        )
    for split in set(named.values()):
        twice = [top for top in tops if named[top] == split]
        if len(twice) > 1:
            raise UsageError(f"the folders {_names(twice)} of {location} are both {split}", "merge them")
    return named


def _classes(shape: _Shape, splits: dict[str, str] | None) -> list[str]:
    if splits is None:
        return sorted(shape.tops)
    return sorted({name for top in shape.tops.values() for name in top.subfolders})


def _wanted_classes(classes: list[str], config: PrepareConfig) -> frozenset[str] | None:
    if config.filter.classes is None:
        return None
    for name in config.filter.classes:
        if name not in classes:
            near = difflib.get_close_matches(name, classes, n=1)
            raise ConfigError(
                f"filter.classes names {name!r}, which is no class of the source",
                f"did you mean {near[0]!r}?" if near else f"there are: {_names(classes)}",
            )
    return frozenset(config.filter.classes)


def _label(
    batch: pa.RecordBatch, splits: dict[str, str] | None, wanted: frozenset[str] | None
) -> pa.RecordBatch:
    """The batch with label and split, and with the outcome of files that have no class or none wanted."""
    columns = batch.to_pydict()
    depth = 1 if splits is None else 2
    labels, given, outcomes = columns["label"], columns["split"], columns["outcome"]
    reasons, messages = columns["reason"], columns["message"]
    for at, uri in enumerate(columns["uri"]):
        parts = uri.split("/", depth)
        if splits is not None and len(parts) > 1:
            given[at] = splits.get(parts[0])  # none for a folder with nothing but ignored files
        label = parts[depth - 1] if len(parts) > depth else None
        labels[at] = label
        if outcomes[at] is not None:
            continue
        if label is None:
            outcomes[at], reasons[at], messages[at] = QUARANTINED, "no_class", "it lies in no class folder"
        elif wanted is not None and label not in wanted:
            outcomes[at], reasons[at], messages[at] = (
                FILTERED,
                "class",
                "filter.classes does not name its class",
            )
    return pa.RecordBatch.from_pydict(columns, schema=LISTING_SCHEMA)


def _warnings(shape: _Shape, splits: dict[str, str] | None, classes: list[str]) -> list[str]:
    warnings = []
    if len(classes) == 1:
        only = shape.tops.get(classes[0])
        hint = ""
        if splits is None and only is not None and not only.num_direct and len(only.subfolders) > 1:
            below = _names(sorted(only.subfolders))
            hint = f"; if its folders {below} are the classes, give {classes[0]!r} as source"
        warnings.append(f"the source has a single class, {classes[0]!r}{hint}")
    if splits is not None and set(splits.values()) != {"train", "validation", "test"}:
        missing = [name for name in ("train", "validation", "test") if name not in splits.values()]
        warnings.append(f"the source gives its splits, but no {' and no '.join(missing)}")
    return warnings


def _names(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:6])
    return shown if len(names) <= 6 else f"{shown} and {len(names) - 6} more"
