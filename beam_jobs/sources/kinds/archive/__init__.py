"""Images in tar and zip archives, read where they are: no archive is unpacked into files.

Every member of every archive becomes one row, with the URI ``<archive>#<name in it>``, except folders. A file
beside the archives has a row of its own, and so has an archive that is empty, damaged or cut short.

    members     a file in an archive, and which names are hostile
    tar, zip    the members of an archive of that format
    opening     the format by the ending, and compressed tars as streams
    listing     one archive: its members as rows
    layouts     where labels and splits come from
    labelling   the label and split of each member
    sidecar_values  the sidecars that describe an image, and what they say besides one class
    reading     members by their position, compressed tars in the spool of the run; the first members
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.reasons import OTHER_FILE, SIDECAR
from shardmill.beam_jobs.schemas import MEMBER_LISTING_SCHEMA, FileRef, Status
from shardmill.beam_jobs.sources.class_names import class_numbers, quoted
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import FoundFile, IgnorePatterns
from shardmill.beam_jobs.sources.kinds.archive.labelling import is_image, labelled
from shardmill.beam_jobs.sources.kinds.archive.layouts import choose_layout, splits_by_name, without_ending
from shardmill.beam_jobs.sources.kinds.archive.listing import ListedArchive, json_label, list_archive
from shardmill.beam_jobs.sources.kinds.archive.opening import ENDINGS, is_archive
from shardmill.beam_jobs.sources.kinds.archive.reading import ArchiveReader, first_members, unpack_compressed
from shardmill.beam_jobs.sources.kinds.archive.sidecar_values import asked_values, with_values
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.masks import (
    FolderPairs,
    Pairing,
    SamplePairs,
    pair,
    with_reason,
    with_splits,
)
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.beam_jobs.tables.columns import sorted_by
from shardmill.infra.codecs.formats import sniff
from shardmill.infra.errors import ConfigError, NotFoundError
from shardmill.infra.progress import log
from shardmill.infra.readable import counted
from shardmill.infra.storage.filesystem import Storage

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
    return Listing(_with_member_masks(table, archives, config), [*warnings, *_damages(listed)])


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise tar and zip archives."""
    archives = glance.ending_in(*ENDINGS)
    return Recognised(f"it has archives: {quoted(archives)}") if archives else None


def first_images(folder: SourceFolder, config: PrepareConfig) -> Iterator[bytes]:
    """Yield the first images of the first archives, to see how they are encoded."""
    for archive in _first_archives(folder, config):
        members = islice(first_members(folder, archive), _MEMBERS_PASSED)
        images = (data for _, data in members if sniff(data) is not None)
        yield from islice(images, _MEMBERS_LOOKED_AT)


def import_settings(folder: SourceFolder, config: PrepareConfig) -> dict[str, Any]:
    """Return the settings for importing labels: the key of .json sidecars that names the class."""
    named: set[str] = set(NAME_KEYS)
    for archive in _first_archives(folder, config):
        members = islice(first_members(folder, archive), _MEMBERS_PASSED)
        sidecars = (data for name, data in members if name.lower().endswith(".json"))
        looked_at = list(islice(sidecars, _MEMBERS_LOOKED_AT))
        named &= {key for key in NAME_KEYS if looked_at and all(json_label(data, key) for data in looked_at)}
    key = next((key for key in NAME_KEYS if key in named), None)
    return {} if key is None else {"archive": {"name_key": key}}


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


# Masks of images in archives are in a folder of their own, or beside their images as in WebDataset:
#
#   images/…/a.jpg          masks/…/a.png          in one archive, or images.zip and masks.zip
#   0001.jpg                0001.mask.png          or .seg.png, or what source.masks.mask_suffix says
def _with_member_masks(
    members: pa.Table, archives: Sequence[ListedArchive], config: PrepareConfig
) -> pa.Table:
    """Attach its mask to each image, and fill in the splits.

    Args:
        members: MEMBER_LISTING_SCHEMA, sorted by URI.
        archives: those that have members.
        config: settings of the run.

    Raises:
        NotFoundError: no image has a mask.
    """
    settings = config.source.masks
    samples, folders = SamplePairs(settings), FolderPairs(settings)
    columns = (members[name].to_pylist() for name in ("uri", "container", "status"))
    others: list[int] = []
    for row, (uri, container, status) in enumerate(zip(*columns, strict=True)):
        if status != Status.TO_READ:
            continue
        name = uri[len(container) + 1 :]
        if not is_image(name):
            others.append(row)
            continue
        path = f"{without_ending(container)}/{name}"
        samples.add(row, path)
        folders.add(row, path)
    are_samples = bool(samples.images.keys() & samples.masks.keys())
    found: Pairing = samples if are_samples else folders
    members = _with_splits(members, found, archives, config)
    if are_samples:
        words = "it is no image, and no mask of one"
        members = with_reason(members, np.array(others, np.int64), SIDECAR, words)
    else:
        words = f"neither an image in a folder {settings.images} nor a mask in a folder {settings.masks}"
        members = with_reason(
            members, np.sort([*others, *folders.others]).astype(np.int64), OTHER_FILE, words
        )
    listing, num_pairs = pair(members, found, settings)
    if not num_pairs:
        raise NotFoundError(
            f"no image in the archives has a mask: neither masks as 0001.mask.png beside images, nor "
            f"folders {settings.images} and {settings.masks} with files of the same names",
            "say what the names of masks end in, or name the folders: source.masks.mask_suffix, images, "
            "masks",
        )
    log(f"{counted(num_pairs, 'image')} with a mask in {counted(len(archives), 'archive')}")
    return listing


def _with_splits(
    members: pa.Table, found: Pairing, archives: Sequence[ListedArchive], config: PrepareConfig
) -> pa.Table:
    """Fill in the splits that the names of archives give, else those of folders."""
    if config.source.layout == "classes":
        return members
    by_archive = splits_by_name(archives, config)
    if by_archive is None:
        return with_splits(members, found)
    splits: list[str | None] = [None] * members.num_rows
    containers = members["container"].to_pylist()
    for rows in found.images.values():
        for row in rows:
            splits[row] = by_archive[containers[row]]
    at = members.schema.get_field_index("split")
    return members.set_column(at, members.schema.field(at), pa.array(splits, pa.string()))
