"""Masks in the rows of files: a second column beside the image, and no file or input of its own."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.schemas import (
    MASK_COLUMNS,
    MASK_MEMBER_COLUMNS,
    NO_IMAGE,
    NO_MASK,
    UNMASKED,
    FileRef,
    Status,
)
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.rows.listing import row_of
from shardmill.beam_jobs.sources.rows.reading import RowReader

_UNIT = "mask"  # in place of "row" in the URI of the image


def with_row_masks(listing: pa.Table) -> pa.Table:
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


class MaskedRowReader:
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
