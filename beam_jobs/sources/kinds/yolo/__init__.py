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
from shardmill.beam_jobs.sources.annotations.collecting import READINGS, AnnotatedImage, Annotations
from shardmill.beam_jobs.sources.annotations.listing import listing_of
from shardmill.beam_jobs.sources.annotations.reading import (
    MOST_BYTES,
    SETTING,
    content_of,
    find_annotations,
    read_together,
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
)
from shardmill.beam_jobs.sources.kinds.yolo.members import Member, find_members
from shardmill.beam_jobs.sources.kinds.yolo.places import NAMES_FILES, Tree
from shardmill.beam_jobs.sources.kinds.yolo.rows import (
    Form,
    LabelFile,
    lengths_tell,
    object_of,
    parse_rows,
)
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.masks import with_reason
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised, cli_for
from shardmill.beam_jobs.tables.columns import mask_of
from shardmill.infra.errors import ConfigError, NotFoundError
from shardmill.infra.readable import counted
from shardmill.infra.storage.locations import stem_of

_NO_NAME = "of a class without a name"
_ROW = re.compile(rb"\s*[0-9]+(\.0*)?([ \t]+[0-9.eE+-]+){4,}\s*(\n|\Z)")
_HEAD_BYTES, _HEADS = 4096, 64
_USUALLY_IGNORED = ("*.txt", "*.yaml", "*.yml")  # of filter.ignore: descriptions, where other kinds are read

Read = Mapping[str, LabelFile | str]  # URI of a label file -> its rows, or why it cannot be read


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
    used = _add(found, tree, members.images, names, described, config)
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


def _add(
    found: Annotations,
    tree: Tree,
    images: list[Member],
    names: Mapping[int, str],
    described: Description,
    config: PrepareConfig,
) -> set[str]:
    """Add all images with their objects, and label files whose image is not there.

    Returns:
        URIs of the label files that were read.

    Raises:
        NotFoundError: no image has a label file. ConfigError: no row can be read, or rows have two readings.
    """
    of_image = [tree.label_file(image.path) for image in images]
    used = {uri for uri in of_image if uri is not None}
    if not used:
        raise NotFoundError(
            "no image of the source has a label file of YOLO",
            "give the folder above images and labels as the source, or say another kind",
        )
    stems = {stem_of(uri) for uri in tree.images()}
    orphans = {uri: stem for uri, stem in tree.label_files() if uri not in used and stem not in stems}
    read = dict(_parsed(tree, [*sorted(used), *orphans]))
    form = _form(read, described, config)
    seen: set[str] = set()
    for image, uri in zip(images, of_image, strict=True):
        # An image that is named for two splits contradicts itself, under an address of its own.
        row_uri = image.uri if uri is None or image.path in seen else f"{uri}#image=1"
        seen.add(image.path)
        rows = read[uri] if uri is not None else LabelFile()
        fault = rows if isinstance(rows, str) else None
        who = f"the image of {uri or image.uri}"
        number = found.add_image(AnnotatedImage(row_uri, who, image.path, image.split, fault=fault))
        if isinstance(rows, LabelFile) and uri is not None:
            _add_rows(found, number, uri, rows, form, names, described)
    for uri, stem in orphans.items():
        rows = read[uri]
        if isinstance(rows, LabelFile) and rows.classes:
            found.add_image(AnnotatedImage(f"{uri}#image=1", f"the image of {uri}", stem))
    lost = (image.path for image, uri in zip(images, of_image, strict=True) if uri is None)
    _check(found, names, [path for path in lost if tree.is_file(path)])
    return used


def _parsed(tree: Tree, uris: list[str]) -> Iterator[tuple[str, LabelFile | str]]:
    """Read label files; one that is no text is told in words."""
    for uri, data in read_together(tree.read, uris):
        try:
            yield uri, data if isinstance(data, str) else parse_rows(data.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            yield uri, f"{uri} is no text: {error}"


def _form(read: Read, described: Description, config: PrepareConfig) -> Form:
    """Return what the numbers of rows are.

    Raises:
        ConfigError: rows of eight numbers can be read in two ways.
    """
    if described.key_points is not None:
        return Form(len(described.key_points.names), described.per_point)
    task = config.source.objects.task or described.task
    if task is None:
        are_outlines = lengths_tell(rows for rows in read.values() if isinstance(rows, LabelFile))
        if are_outlines is False:
            raise ConfigError(
                "the label files have rows of eight numbers: corners of oriented boxes, or outlines of four "
                "points",
                "say which: --set source.objects.task=obb; or --set source.objects.task=segment",
            )
    return Form(has_corners=task == "obb")


def _add_rows(
    found: Annotations,
    image: int,
    uri: str,
    rows: LabelFile,
    form: Form,
    names: Mapping[int, str],
    described: Description,
) -> None:
    """Add the objects of a label file."""
    for number, why in rows.faults:
        found.leave_out(image, why, f"{uri}, line {number}")
    for number, class_number, values in rows.rows():
        name = names.get(class_number) if names else str(class_number)
        seen, who = object_of(values, form), f"{uri}, line {number}"
        if isinstance(seen, str) or name is None:
            found.leave_out(image, seen if isinstance(seen, str) else _NO_NAME, who)
            continue
        if described.key_points is not None:
            found.name_points(name, described.key_points)
        found.add_object(image, seen[0], name, shape=seen[1], who=who)


def _check(found: Annotations, names: Mapping[int, str], without: list[str]) -> None:
    """Say which images have no label file, and refuse label files of another form, without a good row.

    Raises:
        ConfigError: no row is good.
    """
    if without:
        images = counted(len(without), "image")
        found.warnings.append(f"{images} without a label file, so without objects (first {without[0]})")
    num_shapes, num_objects = len(found.shapes.of_object), len(found.names)
    if 0 < num_shapes < num_objects:
        found.warnings.append(
            f"{counted(num_objects - num_shapes, 'object')} of {num_objects:,} have a box alone, others more"
        )
    if not names:
        found.warnings.append(
            "no file names the classes: their numbers are their names; for others give "
            "source.columns.class_names"
        )
    if found.left_out and not found.names:
        ((why, count),) = found.left_out.most_common(1)
        raise ConfigError(
            f"no row of the label files is good: {count:,} {why} (first {found.first[why]})",
            "numbers are relative to the image, 0 to 1; those of key points need kpt_shape in data.yaml",
        )
