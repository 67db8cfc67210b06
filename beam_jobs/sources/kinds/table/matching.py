"""The file that each row of a table names: by its whole path, or else by its path without an ending."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.schemas import MISSING_FILE, SEVERAL_FILES, Status
from beam_jobs.sources.kinds.table.rows import reject
from beam_jobs.tables.lists import mask_of
from infra.errors import NotFoundError

_ENDING = r"\.[^./]*$"


@dataclass(frozen=True)
class FoundFiles:
    """The files that rows name.

    Attributes:
        files: int64 [rows], row of the file in the listing; -1 if there is none.
        num_without_ending: rows that name a file without its ending.
    """

    files: npt.NDArray[np.int64]
    num_without_ending: int


def find_files(rows: pa.Table, files: pa.Table) -> tuple[pa.Table, FoundFiles]:
    """Find the file of each row.

    Args:
        rows: UNDERSTOOD_SCHEMA.
        files: LISTING_SCHEMA.

    Returns:
        The rows, with reasons for those whose file is missing or not a single one, and the files.
    """
    paths = rows["path"].combine_chunks()
    found = _positions(paths, files["uri"])
    rest = np.flatnonzero((found < 0) & mask_of(pc.is_valid(paths)))
    by_stem, counts = _by_stem(paths.take(pa.array(rest)), files)
    found[rest] = np.where(counts == 1, by_stem, -1)
    several = np.zeros(rows.num_rows, np.bool_)
    several[rest] = counts > 1
    words = "several files are named ", rows["path"], " with different endings"
    rows = reject(rows, pa.array(several), SEVERAL_FILES, *words)
    missing = pa.array((found < 0) & mask_of(pc.is_valid(paths)))
    rows = reject(rows, missing, MISSING_FILE, "there is no file ", rows["path"])
    return rows, FoundFiles(found, int(np.count_nonzero(counts == 1)))


def check_found(rows: pa.Table, found: FoundFiles, files: pa.Table, first_path: str | None) -> None:
    """Check that at least one row names a file.

    Args:
        rows: UNDERSTOOD_SCHEMA.
        found: the files that they name.
        files: LISTING_SCHEMA.
        first_path: a path as the table writes it, to look for the folder that it begins in.

    Raises:
        NotFoundError: none does; names the setting that may be wrong.
    """
    if (found.files >= 0).any():
        return
    missing = rows.filter(pc.equal(rows["reason"], MISSING_FILE))
    first = (missing if missing.num_rows else rows)["message"][0]
    raise NotFoundError(
        f"no row of the table names a file of the source; {first}",
        _remedy(first_path or "", files),
    )


def _remedy(path: str, files: pa.Table) -> str:
    """Return the likely reason why no file has a path."""
    prefix = _prefix_of(path, files) if path else None
    if prefix is not None:
        return f"did you mean --set source.table.prefix={prefix}?"
    if "\\" in path:
        return "write / in place of \\ between folders"
    return "look at source.table.path_column and source.table.prefix"


def _prefix_of(path: str, files: pa.Table) -> str | None:
    """Return the folder below which a file has this path, with its ending or without; None if none has."""
    tail = f"/{path.removeprefix('./')}"
    for uris in (files["uri"], pc.replace_substring_regex(files["uri"], _ENDING, "")):
        found = uris.filter(pc.ends_with(uris, tail))
        if len(found):
            return str(found[0].as_py().removesuffix(tail))
    return None


def _by_stem(paths: pa.Array, files: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return a file that is named so before its ending (or -1), and how many are, for each path.

    Ignored files do not count: a text beside an image often has the same name.
    """
    usable = np.flatnonzero(mask_of(pc.equal(files["status"], Status.TO_READ)))
    stems = pc.replace_substring_regex(files["uri"].take(pa.array(usable)), _ENDING, "")
    of_stem = pa.table({"stem": stems, "file": usable}).group_by("stem")
    grouped = of_stem.aggregate([("file", "min"), ("file", "count")])
    at = _positions(paths, grouped["stem"])
    if not grouped.num_rows:
        return at, np.zeros(len(paths), np.int64)
    first, count = grouped["file_min"].to_numpy(), grouped["file_count"].to_numpy()
    return np.where(at >= 0, first[at], -1), np.where(at >= 0, count[at], 0)


def _positions(wanted: pa.Array, known: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the position of each text in ``known``: int64, -1 if it is not there or null."""
    at = pc.fill_null(pc.index_in(wanted, known.combine_chunks(), skip_nulls=True), -1)
    return np.asarray(at.to_numpy(zero_copy_only=False), np.int64).copy()
