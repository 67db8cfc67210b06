"""Images in tar and zip archives, read where they are: no archive is unpacked into files.

Every member of every archive becomes one row, with the URI ``<archive>#<name in it>``, except folders. A file
beside the archives has a row of its own, and so has an archive that is empty, damaged or cut short.

    members     a file in an archive, and which names are hostile
    tar, zip    the members of an archive of that format
    opening     the format by the ending, and compressed tars as streams
    listing     one archive: its members as rows
    layouts     where labels and splits come from
    labelling   the label and split of each member
    masks       the mask of each image
    sidecar_values  the sidecars that describe an image, and what they say besides one class
    reading     members by their position, compressed tars in the spool of the run; the first members
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, BinaryIO, cast

import pyarrow as pa

from shardmill.beam_jobs.config import ArchiveConfig, PrepareConfig, SourceConfig
from shardmill.beam_jobs.schemas import MEMBER_LISTING_SCHEMA, FileRef
from shardmill.beam_jobs.sources.class_names import class_numbers, quoted
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import FoundFile, IgnorePatterns, SourceFault
from shardmill.beam_jobs.sources.kinds.archive.labelling import labelled
from shardmill.beam_jobs.sources.kinds.archive.layouts import choose_layout
from shardmill.beam_jobs.sources.kinds.archive.listing import ListedArchive, json_label, list_archive
from shardmill.beam_jobs.sources.kinds.archive.masks import with_member_masks
from shardmill.beam_jobs.sources.kinds.archive.opening import ENDINGS, is_archive
from shardmill.beam_jobs.sources.kinds.archive.reading import (
    ArchiveReader,
    first_members,
    first_names,
    unpack_compressed,
)
from shardmill.beam_jobs.sources.kinds.archive.sidecar_values import asked_values, with_values
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.masks import is_mask_name
from shardmill.beam_jobs.sources.recognition.doubts import doubt_of_members
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised, cli_for
from shardmill.beam_jobs.sources.roles import refused_objects
from shardmill.beam_jobs.tables.columns import sorted_by
from shardmill.infra.codecs.formats import sniff
from shardmill.infra.errors import ConfigError, NotFoundError, UsageError
from shardmill.infra.format.known_features import BOXES, LABELS, MASK_PIXELS, TARGETS, LabelKind
from shardmill.infra.progress import log
from shardmill.infra.readable import counted
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import uri_of

_EXPORTED = frozenset({"id", "label", "label_name", "sha256", "source_uri", "stored_bytes"})

# Where the texts of labels are numbers, these keys of .json sidecars may have the names.
NAME_KEYS = ("label_name", "class_name")

_ARCHIVES_LOOKED_INTO, _MEMBERS_LOOKED_AT = 4, 32  # looked at by an import (--as-is)
_MEMBERS_PASSED = 8 * _MEMBERS_LOOKED_AT  # in search of these
_LISTED_TOGETHER = 8  # archives; of an object store most of the time is waiting


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every member of every archive with its label and, if given, its split.

    Raises:
        NotFoundError: there is no such folder, or no archive in it.
        UsageError: the members have no classes, or two layouts at once.
        ConfigError: ``filter.classes`` names a class that is not there.
    """
    ignore = IgnorePatterns(config.filter.ignore)
    walk = folder.walk(ignore, splits_on_top=False)
    wanted = asked_values(config.source.columns, config.source.label_kind)

    def listed_of(file: FoundFile) -> ListedArchive:
        return list_archive(folder, file, ignore, config.source, wanted)

    with ThreadPoolExecutor(_LISTED_TOGETHER, "archives") as threads:
        listed = list(threads.map(listed_of, walk))
    archives = [archive for archive in listed if archive.batches]
    if not archives:
        raise NotFoundError(
            f"source {folder.uri} holds no archive with a file in it",
            "give a folder with .tar, .tar.gz or .zip files, one of them, or a pattern in quotes",
        )
    if config.source.label_kind == "mask":
        return _list_masked(listed, archives, config, walk.warnings())
    layout = choose_layout(archives, config)
    names = class_numbers(config.source.columns, folder)
    batches, warnings = labelled(archives, layout, config, folder.uri, names)
    unread = [f"{archive.uri}#{name}" for archive in archives for name in archive.unread]
    if unread and layout.kind == "webdataset":
        words = "with neither text nor JSON that can be read"
        warnings.append(f"{counted(len(unread), 'sidecar')} {words}, such as {unread[0]}")
    num_members = sum(batch.num_rows for batch in batches)
    log(f"{num_members:,} members of {len(archives):,} archives: {layout.described()}")
    batches += [archive.own for archive in listed if archive.own is not None]
    # Each batch has a dictionary of its own.
    table = pa.Table.from_batches(batches, MEMBER_LISTING_SCHEMA).unify_dictionaries()
    table = sorted_by(table, "uri")
    if wanted:
        if layout.kind != "webdataset":
            raise ConfigError(
                f"labels or features of images in archives come from sidecars, and there are "
                f"{layout.described()}",
                "give .json or .txt sidecars as WebDataset does (docs/archives.md), or leave out "
                "source.labels and source.columns.features",
            )
        table = with_values(table, archives, config, folder, names)
    return Listing(table, [*walk.warnings(), *_damages(listed), *warnings])


def _list_masked(
    listed: list[ListedArchive], archives: list[ListedArchive], config: PrepareConfig, warnings: list[str]
) -> Listing:
    """Return the listing of images with masks."""
    batches = [batch for archive in archives for batch in archive.batches]
    batches += [archive.own for archive in listed if archive.own is not None]
    table = pa.Table.from_batches(batches, MEMBER_LISTING_SCHEMA).unify_dictionaries()
    table = sorted_by(table, "uri")
    return Listing(with_member_masks(table, archives, config), [*warnings, *_damages(listed)])


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise tar and zip archives; those of data sets with tables or annotations are to be unpacked."""
    archives = glance.ending_in(*ENDINGS)
    if not archives:
        return None
    why = f"it has archives: {quoted(archives)}"
    doubt = None
    if settings.label_kind == "class" and settings.archive == ArchiveConfig():
        doubt = doubt_of_members(_names_in(glance.folder, archives[0]), glance, settings)
    if doubt is None:
        return Recognised(why)
    by_folders = cli_for("archive", {"archive": {"layout": "folders"}})
    readings = [
        f"unpack {archives[0]} and give its folder as the source",
        f"{by_folders} if its folders are the classes",
        f"{cli_for('archive', {'labels': 'none'})} if the images have no labels",
    ]
    return Recognised(f"{why}; in {archives[0]} {doubt}", readings=readings)


def _names_in(folder: SourceFolder, archive: str) -> list[str]:
    """Return the names of the members of an archive: all of a zip, the first ones of others."""
    try:
        if not archive.lower().endswith(".zip"):
            return list(islice(first_names(folder, archive), _MEMBERS_PASSED))
        with folder.open_container(archive) as file, zipfile.ZipFile(cast(BinaryIO, file)) as found:
            return [name for name in found.namelist() if not name.endswith("/")]
    except (SourceFault, zipfile.BadZipFile, NotImplementedError, OSError, ValueError):
        return []


def first_images(folder: SourceFolder, config: PrepareConfig) -> Iterator[bytes]:
    """Yield the first images of the first archives, to see how they are encoded."""
    for archive in _first_archives(folder, config):
        members = islice(first_members(folder, archive), _MEMBERS_PASSED)
        images = (data for name, data in members if sniff(data) is not None and not is_mask_name(name))
        yield from islice(images, _MEMBERS_LOOKED_AT)


def import_settings(folder: SourceFolder, config: PrepareConfig) -> dict[str, Any]:
    """Return the settings for importing labels: the key of .json sidecars that names the class.

    Of an export of Shardmill also those of labels of other kinds, and the names of their classes.

    Raises:
        UsageError: it is an export of objects, or of masks without ``export.json`` beside it.
    """
    named: set[str] = set(NAME_KEYS)
    exported: set[str] | None = None
    for archive in _first_archives(folder, config):
        members = islice(first_members(folder, archive), _MEMBERS_PASSED)
        sidecars = (data for name, data in members if name.lower().endswith(".json"))
        looked_at = list(islice(sidecars, _MEMBERS_LOOKED_AT))
        named &= {key for key in NAME_KEYS if looked_at and all(json_label(data, key) for data in looked_at)}
        keys = [_keys_of_export(data) for data in looked_at]
        exported = set.intersection(*keys, *([] if exported is None else [exported])) if keys else set()
    key = next((key for key in NAME_KEYS if key in named), None)
    if key is not None:
        return {"archive": {"name_key": key}}
    given = config.source.labels
    if not exported or config.source.columns.label is not None or given == "class":
        return {}
    kind = _kind_of_export(exported)
    if given not in (None, kind):
        return {}
    return {"labels": kind, **_labels_of_export(folder, config, kind, has_objects=BOXES in exported)}


def _keys_of_export(data: bytes) -> set[str]:
    """Return the keys of a .json sidecar that Shardmill exported without a class; empty if it is none."""
    try:
        row = json.loads(data)
    except (ValueError, RecursionError):
        return set()
    is_one = isinstance(row, dict) and row.keys() >= _EXPORTED and row["label"] is row["label_name"] is None
    return set(row) if is_one else set()


def _kind_of_export(keys: Collection[str]) -> LabelKind:
    return (
        "mask"
        if MASK_PIXELS in keys
        else "multi"
        if LABELS in keys
        else "targets"
        if TARGETS in keys
        else "none"
    )


def _labels_of_export(
    folder: SourceFolder, config: PrepareConfig, kind: LabelKind, *, has_objects: bool
) -> dict[str, Any]:
    """Return the settings of the labels of an export besides their kind."""
    if has_objects and config.source.labels is None:
        raise refused_objects(f"the .json sidecars of {folder.uri}", "archives")
    if kind == "targets":
        return {"columns": {"label": TARGETS}}
    classes = _classes_of_export(folder) if kind in ("multi", "mask") else []
    if kind == "mask":
        if config.source.masks.classes:
            return {}
        if not classes:
            raise UsageError(
                f"{folder.uri} has masks, and no export.json that names their classes",
                "give the folder of the export as the source, or the names in the order of their numbers: "
                "--set source.masks.classes=\"['NAME', 'NAME']\"",
            )
        return {"masks": {"classes": {name: [number] for number, name in enumerate(classes)}}}
    columns = config.source.columns
    named = {"class_names": classes} if classes and not (columns.class_names or columns.classes_file) else {}
    return {"columns": {"label": LABELS, **named}} if kind == "multi" else {}


def _classes_of_export(folder: SourceFolder) -> list[str]:
    """Return the names of the classes that ``export.json`` of an export names; none if it is not there."""
    try:
        with folder.open_container("export.json") as file:
            found = json.loads(file.read_at(file.size_bytes, 0))["classes"]
    except (SourceFault, ValueError, KeyError, TypeError):
        return []
    are_names = isinstance(found, list) and all(isinstance(name, str) for name in found)
    return list(map(uri_of, found)) if are_names else []


def _first_archives(folder: SourceFolder, config: PrepareConfig) -> list[FileRef]:
    walk = folder.walk(IgnorePatterns(config.filter.ignore), splits_on_top=False)
    archives = [file.ref for file in walk if file.fault is None and is_archive(file.uri)]
    return archives[:_ARCHIVES_LOOKED_INTO]


def open_reader(folder: SourceFolder, config: PrepareConfig, scratch: Storage | None) -> ArchiveReader:
    """Open the reader of the workers."""
    return ArchiveReader(folder, scratch)


def make_readable(
    folder: SourceFolder, config: PrepareConfig, references: pa.Table, scratch: Storage
) -> None:
    """Unpack each compressed tar once into the spool of the run, if any of its members must be read."""
    unpack_compressed(folder, references, scratch, config.source.archive.unpacked_bytes)


def _damages(listed: list[ListedArchive]) -> list[str]:
    """Warn of archives that are damaged, as each is only one row."""
    return [
        f"{archive.uri}: {archive.own['message'][0].as_py()}; {kept:,} members before that are kept"
        for archive in listed
        if archive.own is not None and archive.own["reason"][0].as_py() == "broken_container"
        for kept in [sum(batch.num_rows for batch in archive.batches)]
    ]
