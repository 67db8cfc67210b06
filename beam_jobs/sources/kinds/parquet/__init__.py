"""Images that lie in the rows of Parquet files or streams of Arrow, as Hugging Face publishes datasets.

Each row of each file is an input, ``data/train-00000-of-00002.parquet#row=0000017``; rows are counted from 0.
Class names come from the file's own metadata, splits from a column or from the names of the files.

Hugging Face's library ``datasets`` describes the columns in the file's metadata: which one is an image, and
the class names of labels that are numbers. It writes an image as a struct of ``bytes`` and ``path``.
``reading`` reads the labels of a file, and its images row by row.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import BinaryIO, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.reasons import NO_IMAGE, NO_MASK, UNMASKED
from shardmill.beam_jobs.schemas import MASK_COLUMNS, MASK_MEMBER_COLUMNS, FileRef, Status
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kinds.parquet.reading import (
    ParquetImages,
    check_num_rows,
    class_names_of,
    described,
    empty_columns,
    holds_images,
    list_rows,
    offered,
    open_parquet,
)
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.beam_jobs.sources.roles import Roles, image_of, roles_of
from shardmill.beam_jobs.sources.rows.listing import Contents, list_contents, read_all, row_of, walk_files
from shardmill.beam_jobs.sources.rows.reading import RowReader
from shardmill.beam_jobs.sources.rows.row_files import FileRows, RowFile, RowFileBroken, choose_files
from shardmill.infra.progress import log
from shardmill.infra.storage.filesystem import Storage

ENDINGS = (".parquet", ".pq", ".arrow")


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every row of the Parquet files of a folder, with its label and split.

    Raises:
        NotFoundError: there is no such folder, or no row in it.
        ConfigError: a column is missing, or of another type than its role needs.
    """
    settings, kind = config.source.columns, config.source.label_kind
    files, warnings = walk_files(folder, config)
    chosen = choose_files(folder, files, lambda uri: uri.endswith(ENDINGS), "Parquet file or stream of Arrow")
    found: list[Roles] = []

    def read(file: RowFile) -> FileRows:
        with file.open() as stream:
            parquet = open_parquet(cast(BinaryIO, stream))
            schema = parquet.schema_arrow
            is_open = not found and settings.label is None
            offer = offered(file.uri, schema, kind, empty_columns(parquet, kind) if is_open else ())
            roles = roles_of(offer, settings, kind, first=found[0] if found else None)
            if kind == "mask" and settings.mask is not None:
                image_of(offer, settings.mask)
            names = {} if roles.label is None else class_names_of(described(schema).get(roles.label))
            if not found:
                note = f", with {len(names)} class names in its metadata" if names else ""
                log(f"{file.uri} was read as Parquet: {roles.in_words('column', note)}")
            found.append(roles)
            check_num_rows(parquet, stream.size_bytes)
            return list_rows(file, parquet, roles, names, kind)

    rows, broken = read_all(folder, chosen, read)
    listing = list_contents(folder, config, Contents(files, rows, broken, {}, warnings))
    return listing if kind != "mask" else replace(listing, table=_with_row_masks(listing.table))


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
) -> RowReader | _MaskedRowReader:
    """Open the reader of rows, and of their masks if they have some."""
    settings = config.source.columns
    images = RowReader(folder, partial(ParquetImages, column=settings.image, mask=settings.mask))
    if config.source.label_kind != "mask" or settings.mask is None:
        return images
    masks = RowReader(folder, partial(ParquetImages, column=settings.mask))
    return _MaskedRowReader(images, masks, config.source.masks.unmasked)


_UNIT = "mask"  # in place of "row" in the URI of the image


def _with_row_masks(listing: pa.Table) -> pa.Table:
    """Return a listing of rows in which each image has the mask of its row.

    Args:
        listing: MEMBER_LISTING_SCHEMA and columns of features.

    Returns:
        The same with MASK_COLUMNS and MASK_MEMBER_COLUMNS. Whether a row has a mask is found by reading it.
    """
    is_read = pc.equal(listing["status"], int(Status.TO_READ))
    uris = pc.replace_substring_regex(listing["uri"], r"#row=(\d+)$", rf"#{_UNIT}=\1")
    zeros = pa.array([0] * listing.num_rows, pa.int64())
    values = [uris, zeros, listing["mtime_ns"], listing["container"], listing["position"]]
    for field, value in zip((*MASK_COLUMNS, *MASK_MEMBER_COLUMNS), values, strict=True):
        column = pc.if_else(is_read, value.cast(_plain(field.type)), pa.scalar(None, _plain(field.type)))
        listing = listing.append_column(field, column.cast(field.type))
    return listing


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


class _MaskedRowReader:
    """Reads the images of rows, and their masks. Implements ``Reader``; picklable.

    Args:
        images: reads the column of the images.
        masks: reads the column of the masks.
        unmasked: the treatment of a row without a mask.
    """

    def __init__(
        self, images: RowReader, masks: RowReader, unmasked: Literal["quarantine", "leave_out"]
    ) -> None:
        self._images = images
        self._masks = masks
        self._unmasked = unmasked

    def read(self, file: FileRef) -> bytes:
        """Read an image or a mask, as its URI says.

        Raises:
            SourceFault: it cannot be read, or the row has no mask. StorageError: this machine is at fault.
        """
        row = row_of(file.uri)
        if row is None or row[1] != _UNIT:
            return self._images.read(file)
        try:
            return self._masks.read(file)
        except SourceFault as fault:
            if fault.reason != NO_IMAGE:
                raise
            reason = UNMASKED if self._unmasked == "leave_out" else NO_MASK
            raise SourceFault(reason, "its row has none") from fault
