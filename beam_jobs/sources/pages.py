"""Pages as images: each page of a TIFF, and each frame of a DICOM file, is an input (``image.pages``).

``scan.tif#page=0000002`` is the third page. The pages of a file stay in one split, unless the source gives
groups or the file a series.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.reasons import ROW_FILE
from shardmill.beam_jobs.schemas import MEMBER_COLUMNS, FileRef, Status, has_masks
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.rows.listing import row_of
from shardmill.beam_jobs.tables.columns import with_column
from shardmill.infra.codecs.formats import ImageRejected
from shardmill.infra.codecs.pages import PAGE, InMemory, count_pages, page_name
from shardmill.infra.errors import ConfigError


def with_pages(listing: Listing, folder: SourceFolder) -> Listing:
    """Return a listing with a row for each page of the files that have several.

    Args:
        listing: of plain files.
        folder: the source. The beginning of each file is read.

    Raises:
        ConfigError: the images are members of containers, or have masks or objects.
    """
    table = listing.table
    if MEMBER_COLUMNS[0].name in table.schema.names or has_masks(table):
        raise ConfigError(
            "image.pages = 'images' is for images that are files of their own, without masks",
            "leave it out; or unpack the files into folders, or name them in a table",
        )
    table, found = _counted(table, folder)
    counts = np.array([count for _, count in found], np.int64)
    several = counts > 1
    if not several.any():
        return replace(listing, table=table)
    uris = table["uri"].to_pylist()
    of_row = np.repeat(np.arange(table.num_rows), np.where(several, counts, 0))
    numbers = np.concatenate([np.arange(count) for count in counts[several]])
    # A file of DICOM tells its series when it is read.
    groups = [None if found[row][0] == "dicom" else uris[row] for row in of_row.tolist()]
    parts = {
        "uri": [page_name(uris[row], number) for row, number in zip(of_row, numbers, strict=True)],
        "group": groups,
        "position": numbers,
    }
    messages = [f"its {count:,} pages are images" if count > 1 else None for count in counts.tolist()]
    return replace(listing, table=with_parts(table, of_row, parts, messages))


def with_parts(
    table: pa.Table, of_row: npt.NDArray[np.int64], parts: Mapping[str, Any], messages: Sequence[str | None]
) -> pa.Table:
    """Return a listing in which files hold images, with a row for each of these.

    Args:
        table: LISTING_SCHEMA and columns of features.
        of_row: int64 [N], the row of the file of each image.
        parts: what differs from the row of the file, N values each: uri, position, and other columns. Where
            the table gives a group, it stays. Where a file has such a URI, its last # is doubled.
        messages: of each row of a file, what is said of it; None: the file itself is an image, or lost.

    Returns:
        MEMBER_LISTING_SCHEMA and columns of features, sorted by URI.
    """
    images = table.take(pa.array(of_row))
    containers = images["uri"]
    columns = {
        name: pa.array(values, table.schema.field(name).type)
        for name, values in parts.items()
        if name != "position"
    }
    columns["group"] = pc.coalesce(images["group"], columns["group"])
    while pc.any(is_taken := pc.is_in(columns["uri"], table["uri"].combine_chunks())).as_py():
        others = pc.replace_substring_regex(columns["uri"], r"#([^#]+)$", r"##\1")
        columns["uri"] = pc.if_else(is_taken, others, columns["uri"])
    images = _with(images, size_bytes=pa.array(np.zeros(len(of_row), np.int64)), **columns)
    images = _placed(images, containers, pa.array(parts["position"], pa.int64()))
    told = pa.array(messages, pa.string())
    is_file = pc.is_valid(told)
    files = _with(
        table,
        status=pc.if_else(is_file, int(Status.FILTERED), table["status"]),
        reason=pc.if_else(is_file, ROW_FILE, table["reason"]),
        message=pc.coalesce(told, table["message"]),
    )
    files = _placed(files, *(pa.nulls(table.num_rows, field.type) for field in MEMBER_COLUMNS))
    return pa.concat_tables([files, images]).sort_by("uri")


def _counted(table: pa.Table, folder: SourceFolder) -> tuple[pa.Table, list[tuple[str | None, int]]]:
    """Return the table without damaged files, and the format and the number of pages of each file."""
    columns = {name: table[name].to_pylist() for name in ("uri", "status", "reason", "message")}
    found: list[tuple[str | None, int]] = []
    for at, (uri, status) in enumerate(zip(columns["uri"], columns["status"], strict=True)):
        found.append((None, 1))
        if status != Status.TO_READ:
            continue
        try:
            with folder.open_container(uri) as file:
                found[-1] = count_pages(file)
        except (SourceFault, ModuleNotFoundError):
            continue  # reading the file tells it
        except ImageRejected as rejected:
            columns["status"][at] = Status.QUARANTINED
            columns["reason"][at], columns["message"][at] = rejected.reason, rejected.message
    return _with(table, **{name: pa.array(columns[name]) for name in ("status", "reason", "message")}), found


def _with(table: pa.Table, **columns: Any) -> pa.Table:
    for name, column in columns.items():
        table = with_column(table, table.schema.field(name), column)
    return table


def _placed(table: pa.Table, *places: pa.Array) -> pa.Table:
    for field, column in zip(MEMBER_COLUMNS, places, strict=True):
        table = with_column(table, field, column)
    return table


class PageReader:
    """Reads pages, each as a file of its own, and files without several pages. The last file stays in memory.

    Args:
        folder: the source.
    """

    def __init__(self, folder: SourceFolder) -> None:
        self._folder = folder
        self._last: tuple[str, int] | None = None
        self._file = InMemory(b"")

    def __reduce__(self) -> tuple[type[PageReader], tuple[SourceFolder]]:
        return PageReader, (self._folder,)

    def read(self, file: FileRef) -> bytes:
        """Read a page, if its file has not changed since it was listed.

        Raises:
            SourceFault: it is gone, changed, unreadable or too large. StorageError: this machine is at fault.
        """
        container, position = file.container, file.position
        if container is None or position is None:
            row = row_of(file.uri)
            if row is None or row[1] != PAGE:
                return self._folder.read(file)
            container, _, position = row
        if self._last != (container, file.mtime_ns):
            with self._folder.open_container(container) as opened:
                self._folder.check_length(opened.size_bytes)
                if file.mtime_ns:
                    opened.check_unchanged(file.mtime_ns)
                self._file = InMemory(opened.read_at(opened.size_bytes, 0))
            self._last = container, file.mtime_ns
        try:
            return self._file.page(position)
        except ImageRejected as rejected:
            raise SourceFault(rejected.reason, rejected.message) from rejected
