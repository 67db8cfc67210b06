"""Class folders: the layout of a source, and the label and split that the path of each image gives.

Two layouts are told apart by the names of the top folders::

    <class>/...                                the splits are made here
    {train,validation,test}/<class>/...        the splits are given

All files below a class folder, however deep, belong to that class. A file outside every class folder has no
label and is quarantined with the reason "no_class".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.reasons import BAD_NAME, NO_CLASS, OTHER_CLASS
from shardmill.beam_jobs.schemas import Status
from shardmill.beam_jobs.sources.class_names import NO_CLASSES, look_alikes, plain_name, quoted
from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from shardmill.infra.errors import UsageError
from shardmill.infra.format.contract import SPLITS

_REMEDY = (
    "put the images of each class into a folder of its own: <source>/<class>/image.jpg; or say "
    "--set source.kind=table if a table names their labels, or source.labels=none if they have none"
)


_BACKSLASHES = r": its name has \, where / stands between folders"


@dataclass
class TopFolder:
    """Contents of a folder directly below the root, without ignored files."""

    num_direct: int = 0
    subfolders: set[str] = field(default_factory=set)


@dataclass
class Shape:
    """Contents of the root, without ignored files: enough to recognise the layout."""

    num_files: int = 0
    num_ignored: int = 0
    num_direct: int = 0
    has_backslashes: bool = False  # in the names of these
    tops: dict[str, TopFolder] = field(default_factory=dict)

    def add(self, path: str, *, is_ignored: bool) -> None:
        """Add a file by its path below the root; a folder that cannot be listed ends in a slash."""
        if is_ignored:
            self.num_ignored += 1
            return
        self.num_files += 1
        parts = path.split("/", 2)
        if len(parts) == 1:
            self.num_direct += 1
            self.has_backslashes |= "\\" in path
            return
        top = self.tops.setdefault(parts[0], TopFolder())
        if len(parts) > 2:
            top.subfolders.add(parts[1])
        elif parts[1]:  # else this is the top folder itself, which cannot be listed
            top.num_direct += 1


def given_splits(
    shape: Shape,
    config: PrepareConfig,
    location: str,
    remedy: str = _REMEDY,
    *,
    needs_classes: bool = True,
) -> dict[str, str] | None:
    """Return top folder -> split, or None if the top folders are classes, or folders without a meaning.

    Args:
        shape: layout of the source: classes, or splits above them.
        config: settings of the run, with ``source.layout``.
        location: place of the source, for people.
        remedy: what to do if there are no class folders.
        needs_classes: whether there must be class folders.

    Raises:
        UsageError: there are no class folders, or two layouts at once.
    """
    layout = config.source.layout
    tops = sorted(shape.tops)
    if not tops and not needs_classes:
        return None
    if not tops:
        raise UsageError(
            f"source {location} has no class folders: its {shape.num_direct} files lie directly in it"
            + (_BACKSLASHES.replace("its name has", "their names have") if shape.has_backslashes else ""),
            remedy,
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


def class_names(
    shape: Shape, splits: dict[str, str] | None, config: PrepareConfig, location: str
) -> list[str]:
    """Return the names of the classes, sorted.

    Raises:
        UsageError: all have names of folders around images or classes, such as ``images``, or all lies in one
            folder around folders of splits; and the settings do not say that these are classes.
    """
    tops = shape.tops
    names = sorted(tops if splits is None else {name for top in tops.values() for name in top.subfolders})
    below = sorted(tops[names[0]].subfolders) if splits is None and len(names) == 1 else []
    is_around = (
        bool(below)
        and not tops[names[0]].num_direct
        and all(name.lower() in SPLIT_OF_FOLDER for name in below)
    )
    are_odd = bool(names) and all(plain_name(name) in NO_CLASSES for name in names)
    if config.source.layout != "auto" or not (are_odd or is_around):
        return names
    place = f"give {location}/{names[0]} as the source"
    if config.source.kind == "archive":
        place = f"--set source.archive.prefix={names[0]}"
    ways = [f"{place} if {quoted(below)} are the classes, or hold them"] if below else []
    ways.append("--set source.labels=none if the images have no labels")
    ways.append("--source-kind auto to have tables and annotations looked for")
    ways.append(
        f"--set source.layout={'classes' if splits is None else 'splits'} if {quoted(names)} are classes"
    )
    raise UsageError(f"the classes of {location} would be {quoted(names)}", "say which: " + "; ".join(ways))


def label_by_folder(
    batch: pa.RecordBatch,
    paths: Sequence[str],
    splits: dict[str, str] | None,
    wanted: frozenset[str] | None,
) -> pa.RecordBatch:
    """Fill in label and split, and settle the files that have no class or one that is not wanted.

    Args:
        batch: LISTING_SCHEMA or MEMBER_LISTING_SCHEMA.
        paths: paths of the files below the root.
        splits: as ``given_splits`` returns them.
        wanted: as ``class_names.wanted_classes`` returns them.
    """
    columns = batch.to_pydict()
    depth = 1 if splits is None else 2
    labels, given, status = columns["label"], columns["split"], columns["status"]
    reasons, messages = columns["reason"], columns["message"]
    for at, path in enumerate(paths):
        parts = path.split("/", depth)
        if splits is not None and len(parts) > 1:
            given[at] = splits.get(parts[0])  # none for a folder with nothing but ignored files
        has_class = len(parts) > depth and reasons[at] != BAD_NAME
        label = parts[depth - 1] if has_class else None
        labels[at] = label
        if status[at] != Status.TO_READ:
            continue
        if label is None:
            status[at], reasons[at] = Status.QUARANTINED, NO_CLASS
            messages[at] = "it lies in no class folder" + (_BACKSLASHES if "\\" in path else "")
        elif wanted is not None and label not in wanted:
            status[at], reasons[at] = Status.FILTERED, OTHER_CLASS
            messages[at] = "filter.classes does not name its class"
    return pa.RecordBatch.from_pydict(columns, schema=batch.schema)


def split_by_folder(
    batch: pa.RecordBatch, paths: Sequence[str], splits: dict[str, str] | None
) -> pa.RecordBatch:
    """Fill in the split of images without labels; the arguments are those of ``label_by_folder``."""
    if splits is None:
        return batch
    columns = batch.to_pydict()
    columns["split"] = [splits.get(path.split("/", 1)[0]) if "/" in path else None for path in paths]
    return pa.RecordBatch.from_pydict(columns, schema=batch.schema)


def layout_warnings(shape: Shape, splits: dict[str, str] | None, classes: list[str]) -> list[str]:
    """Return warnings about the classes and splits of a layout, a sentence each."""
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
