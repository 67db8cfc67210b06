"""Images that lie in the rows of Parquet files, as Hugging Face publishes datasets.

Each row of each file is an input, ``data/train-00000-of-00002.parquet#row=0000017``; rows are counted from 0.
Class names come from the file's own metadata, splits from a column or from the names of the files.

    columns    which columns hold image, label, split and group
    reading    the labels of a file, and its images row by row
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import BinaryIO, cast

import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kinds.parquet.columns import Columns, find_columns, holds_images
from shardmill.beam_jobs.sources.kinds.parquet.reading import (
    ParquetImages,
    check_num_rows,
    list_rows,
    open_parquet,
)
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.masks.in_rows import MaskedRowReader, with_row_masks
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.beam_jobs.sources.rows.listing import Contents, list_contents, read_all, walk_files
from shardmill.beam_jobs.sources.rows.reading import RowReader
from shardmill.beam_jobs.sources.rows.row_files import FileRows, RowFile, RowFileBroken, choose_files
from shardmill.infra.progress import log
from shardmill.infra.storage.filesystem import Storage

ENDINGS = (".parquet", ".pq")


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every row of the Parquet files of a folder, with its label and split.

    Raises:
        NotFoundError: there is no such folder, or no row in it.
        ConfigError: a column is not there, or is not what it is to be.
    """
    settings, kind = config.source.rows, config.source.label_kind
    files, warnings = walk_files(folder, config)
    chosen = choose_files(folder, files, lambda uri: uri.endswith(ENDINGS), "Parquet file")
    found: list[Columns] = []

    def read(file: RowFile) -> FileRows:
        with file.open() as stream:
            parquet = open_parquet(cast(BinaryIO, stream))
            columns = find_columns(file.uri, parquet, settings, kind, found[0] if found else None)
            if not found:
                log(f"{file.uri} was read as Parquet: {columns.in_words()}")
            found.append(columns)
            check_num_rows(parquet, stream.size_bytes)
            return list_rows(file, parquet, columns, kind)

    rows, broken = read_all(folder, chosen, read)
    listing = list_contents(folder, config, Contents(files, rows, broken, {}, warnings))
    return listing if kind != "mask" else replace(listing, table=with_row_masks(listing.table))


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise Parquet files with a column of bytes, or of structs with bytes."""
    files = glance.ending_in(*ENDINGS)
    for uri in files[:1]:
        try:
            with glance.folder.open_container(uri) as stream:
                schema = open_parquet(cast(BinaryIO, stream)).schema_arrow
        except (RowFileBroken, SourceFault, pa.ArrowException, OSError):
            return None
        if holding := [column.name for column in schema if holds_images(column.type)]:
            return Recognised(f"{uri} has images in its rows: the column {holding[0]!r}")
    return None


def open_reader(
    folder: SourceFolder, config: PrepareConfig, scratch: Storage | None
) -> RowReader | MaskedRowReader:
    """Open the reader of rows, and of their masks if they have some."""
    settings = config.source.rows
    images = RowReader(folder, partial(ParquetImages, settings=settings))
    if config.source.label_kind != "mask" or settings.mask is None:
        return images
    masks = RowReader(folder, partial(ParquetImages, settings=settings, column=settings.mask))
    return MaskedRowReader(images, masks, config.source.masks.unmasked)
