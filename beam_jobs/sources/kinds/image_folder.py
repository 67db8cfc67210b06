"""Images in folders named after their classes.

Two layouts are told apart by the names of the top folders::

    root/<class>/...                                the splits are made here
    root/{train,validation,test}/<class>/...        the splits are given

All files below a class folder, however deep, belong to that class. A file outside every class folder has no
label and is quarantined with the reason "no_class".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.reasons import BAD_NAME
from shardmill.beam_jobs.schemas import LISTING_SCHEMA
from shardmill.beam_jobs.sources.class_folders import (
    Shape,
    class_names,
    given_splits,
    label_by_folder,
    layout_warnings,
    split_by_folder,
)
from shardmill.beam_jobs.sources.class_names import quoted, wanted_classes
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import FoundFile, IgnorePatterns
from shardmill.beam_jobs.sources.listing import Listing, rows_of_files
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.infra.codecs.formats import HEAD_BYTES, sniff
from shardmill.infra.errors import NotFoundError

_CHUNK_ROWS = 2048  # files that are Python values at a time
_BARE_LOOKED_INTO = 4  # files without an ending


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder with its label and, if given, its split.

    Raises:
        NotFoundError: there is no such folder, or no file in it.
        UsageError: the folder has no classes, or two layouts at once.
        ConfigError: ``filter.classes`` names a class that is not there.
    """
    shape = Shape()
    walk = folder.walk(IgnorePatterns(config.filter.ignore), splits_on_top=config.source.layout != "classes")
    chunks = list(_chunks(walk, shape))
    if shape.num_files == 0:
        files = "1 file" if shape.num_ignored == 1 else f"{shape.num_ignored:,} files"
        seen = f"only {files} that filter.ignore names" if shape.num_ignored else "no file"
        raise NotFoundError(
            f"source {folder.uri} holds {seen}", "give a folder with a subfolder of images for each class"
        )
    if config.source.label_kind == "none":
        splits = given_splits(shape, config, folder.uri, needs_classes=False)
        unlabelled = [split_by_folder(chunk, chunk["uri"].to_pylist(), splits) for chunk in chunks]
        return Listing(pa.Table.from_batches(unlabelled, LISTING_SCHEMA), walk.warnings())
    splits = given_splits(shape, config, folder.uri)
    classes = class_names(shape, splits, config, folder.uri)
    wanted = wanted_classes(classes, config)
    table = pa.Table.from_batches(
        [label_by_folder(chunk, chunk["uri"].to_pylist(), splits, wanted) for chunk in chunks], LISTING_SCHEMA
    )
    return Listing(table, walk.warnings() + layout_warnings(shape, splits, classes))


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise folders that hold images; those of DICOM often have no ending."""
    bare = (
        uri for uri in glance.files if "." not in uri.rpartition("/")[2] or uri.rpartition(".")[2].isdigit()
    )
    images = glance.images or [
        uri for uri in islice(bare, _BARE_LOOKED_INTO) if sniff(glance.head(uri, HEAD_BYTES))
    ]
    folders = sorted({uri.partition("/")[0] for uri in images if "/" in uri})
    if not folders:
        return None
    return Recognised(f"images lie in its folders {quoted(folders)}")


def _chunks(files: Iterable[FoundFile], shape: Shape) -> Iterator[pa.RecordBatch]:
    """Yield the files as rows without label and split, and add each to ``shape``."""
    seen = _added(files, shape)
    while (rows := rows_of_files(islice(seen, _CHUNK_ROWS))).num_rows:
        yield rows


def _added(files: Iterable[FoundFile], shape: Shape) -> Iterator[FoundFile]:
    for file in files:
        is_lost = file.fault is not None and file.fault.reason == BAD_NAME
        shape.add(file.uri, is_ignored=file.ignored_by is not None or is_lost)
        yield file
