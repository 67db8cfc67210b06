"""Objects in images, as the label files of YOLO describe them: one text file an image, and ``data.yaml``.

::

    data.yaml                    names, and train, val, test: folders, or lists of images (.txt)
    images/train/a.jpg           labels/train/a.txt
    train/images/a.jpg           train/labels/a.txt         of Roboflow
    obj_train_data/a.jpg         obj_train_data/a.txt       of Darknet, with obj.data and obj.names

An image without a label file, or with an empty one, has no objects. Without a description all images belong
to the dataset, their folders give the splits, and ``classes.txt`` or ``source.columns`` the names of classes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.reasons import SIDECAR, SOURCE_TABLE
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.annotations.collecting import READINGS, Annotations
from shardmill.beam_jobs.sources.annotations.listing import listing_of
from shardmill.beam_jobs.sources.annotations.reading import (
    MOST_BYTES,
    SETTING,
    content_of,
    find_annotations,
)
from shardmill.beam_jobs.sources.class_names import class_numbers, quoted
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import FoundFile, IgnorePatterns
from shardmill.beam_jobs.sources.kinds.table import listed_files
from shardmill.beam_jobs.sources.kinds.yolo.description import (
    ENDINGS,
    Description,
    parse,
    parse_names_file,
    task_of_name,
    task_of_readme,
)
from shardmill.beam_jobs.sources.kinds.yolo.labels import LabelFiles
from shardmill.beam_jobs.sources.kinds.yolo.members import find_members
from shardmill.beam_jobs.sources.kinds.yolo.places import NAMES_FILES, Tree
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.masks import with_reason
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised, cli_for
from shardmill.beam_jobs.tables.columns import mask_of
from shardmill.infra.errors import ConfigError

_ROW = re.compile(rb"\s*[0-9]+(\.0*)?([ \t]+[0-9.eE+-]+){4,}\s*(\n|\Z)")
_HEAD_BYTES, _HEADS = 4096, 64
_README = "README.roboflow.txt"
_USUALLY_IGNORED = ("*.txt", "*.yaml", "*.yml")  # of filter.ignore: descriptions, where other kinds are read


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder, with the objects that the label files of its images name.

    Raises:
        NotFoundError: there is no such folder, or no image in it has a label file.
        ConfigError: the description is wrong, no row can be read, or it is not told what rows are.
    """
    walk = folder.walk(IgnorePatterns(config.filter.ignore), splits_on_top=False)
    usable: dict[str, FileRef] = {}
    files = listed_files(_noted(walk, usable), [])
    tree = Tree(usable, lambda uri: content_of(folder, usable[uri]))
    described = _described(tree, folder, config)
    members = find_members(tree, described)
    names, names_files = _names(tree, described, folder, config)
    found = Annotations(warnings=[*walk.warnings(), *described.warnings, *members.warnings])
    task = config.source.objects.task or described.task
    labels = LabelFiles(tree, described, names, task, _hint_of_task(tree, described, folder))
    used = labels.add_images(found, members.images)
    for uris, reason, words in (
        (used, SIDECAR, "it describes the image of the same name"),
        ({described.uri, *members.lists, *names_files}, SOURCE_TABLE, "it describes the dataset"),
    ):
        at = mask_of(pc.is_in(files["uri"], pa.array(sorted(uris), pa.string())))
        files = with_reason(files, np.flatnonzero(at), reason, words)
    return listing_of(found, files, config)


def _noted(walk: Iterable[FoundFile], usable: dict[str, FileRef]) -> Iterator[FoundFile]:
    """Yield the files of a walk, and note those that are images or texts of the dataset."""
    for file in walk:
        if file.fault is None and file.ignored_by in (None, *_USUALLY_IGNORED):
            usable[file.uri] = file.ref
        yield file


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Return the label files beside images, and the description; several descriptions are asked about."""
    if settings.labels not in (None, "multi", "mask"):
        return None
    tree = Tree(glance.files, lambda uri: glance.head(uri, _HEAD_BYTES))
    labels = {uri: image for image in glance.images if (uri := tree.label_file(image)) is not None}
    heads = {uri: glance.head(uri, _HEAD_BYTES) for uri in list(labels)[:_HEADS]}
    rows = next((uri for uri, head in heads.items() if _ROW.match(head)), None)
    if rows is None and (not heads or any(head.strip() for head in heads.values())):
        return None
    described = [
        uri for uri in glance.ending_in(*ENDINGS) if _is_description(glance.head(uri, MOST_BYTES), uri)
    ]
    if rows is None and not described:
        return None
    why = f"{rows} holds objects as YOLO writes them" if rows else "label files of YOLO are empty"
    folders = {image.rpartition("/")[0] for image in glance.images if described or tree.label_file(image)}
    if len(described) > 1:
        readings = [cli_for("yolo", {"objects": {"annotations": uri}}) for uri in described[:READINGS]]
        return Recognised(why, image_folders=folders, readings=readings)
    if described:
        why += f", and {described[0]} describes them"
    return Recognised(why, is_certain=bool(described), image_folders=folders)


def _is_description(data: bytes, uri: str) -> bool:
    """Tell whether a file describes a dataset, if perhaps wrongly, which listing the source then says."""
    try:
        return parse(data, uri, uri) is not None
    except ConfigError:
        return True


def _described(tree: Tree, folder: SourceFolder, config: PrepareConfig) -> Description:
    """Return what the description says that the settings name, or the only one of the source.

    Raises:
        ConfigError: several describe other things, or the settings name no description.
    """
    if config.source.objects.annotations:
        tables = find_annotations(folder, config.source.objects)
        table = tables[0]
        found = parse(table.read(), table.name, table.table.uri or "")
        if len(tables) > 1 or found is None:
            raise ConfigError(
                f"{table.name} has no names of classes with train, val or test"
                if found is None
                else f"{SETTING} names {len(tables)} files, and kind yolo takes one",
                f"name a file such as data.yaml with {SETTING}",
            )
        return found
    every: dict[str, Description] = {}
    for uri in tree.uris:
        if uri.endswith(ENDINGS) and isinstance(data := tree.read(uri), bytes):
            found = parse(data, uri, uri)
            if found is not None:
                every[uri] = found
    if len(every) > 1:
        some = [cli_for("yolo", {"objects": {"annotations": uri}}) for uri in list(every)[:READINGS]]
        raise ConfigError(
            f"{quoted(list(every))} each describe a dataset of YOLO", f"say which one: {'; or '.join(some)}"
        )
    return next(iter(every.values()), Description())


def _hint_of_task(tree: Tree, described: Description, folder: SourceFolder) -> tuple[str, str] | None:
    """Return the task that Roboflow's README or else a name tells, and which of them."""
    for uri in (uri for uri in tree.uris if uri.rpartition("/")[2] == _README):
        data = tree.read(uri)
        task = None if isinstance(data, str) else task_of_readme(data.decode("utf-8", "replace"))
        if task is not None:
            return task, uri
    names = (described.name, described.root, folder.uri)
    named = (name.rstrip("/").rpartition("/")[2] for name in names)
    return next(
        ((task, f"the name {name}") for name in named if (task := task_of_name(name)) is not None), None
    )


def _names(
    tree: Tree, described: Description, folder: SourceFolder, config: PrepareConfig
) -> tuple[Mapping[int, str], list[str]]:
    """Return number -> name of the classes, and the files in the source that have the names.

    The settings come first, then the description, then files such as classes.txt; without any it is empty.

    Raises:
        ConfigError: files differ.
    """
    if given := class_numbers(config.source.columns, folder):
        return given, []
    if described.names:
        return described.names, []
    files = [uri for uri in tree.uris if uri.rpartition("/")[2] in NAMES_FILES]
    if described.names_file is not None:
        at = tree.find(described.names_file, [described.uri.rpartition("/")[0], ""])
        files = [at] if at is not None and tree.is_file(at) else files
    found: dict[str, dict[int, str]] = {}
    for uri in files:
        data = tree.read(uri)
        if isinstance(data, str):
            raise ConfigError(
                f"the names of classes cannot be read: {data}", "correct the file or its access"
            )
        found[uri] = parse_names_file(data, uri)
    names = next(iter(found.values()), {})
    if any(other != names for other in found.values()):
        raise ConfigError(
            f"{quoted(list(found))} name classes differently", "name one with source.columns.classes_file"
        )
    return names, list(found)
