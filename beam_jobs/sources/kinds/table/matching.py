"""The file that each row of a table names: by its whole path, without an ending, or in another spelling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.reasons import BROKEN_ROW, MISSING_FILE, SEVERAL_FILES
from shardmill.beam_jobs.schemas import Status
from shardmill.beam_jobs.sources.kinds.table.rows import reject
from shardmill.beam_jobs.tables.columns import mask_of, one_chunk
from shardmill.infra.errors import NotFoundError

Int64 = npt.NDArray[np.int64]
Texts: TypeAlias = pa.Array | pa.ChunkedArray

_ENDING = r"\.[^./]*$"


@dataclass(frozen=True)
class FoundFiles:
    """The files that rows name.

    Attributes:
        files: int64 [rows], row of the file in the listing; -1 if there is none.
        num_inexact: rows that name a file without its ending, or in another spelling.
    """

    files: Int64
    num_inexact: int


def find_files(rows: pa.Table, files: pa.Table) -> tuple[pa.Table, FoundFiles]:
    """Find the file of each row.

    Args:
        rows: UNDERSTOOD_SCHEMA.
        files: LISTING_SCHEMA.

    Returns:
        The rows, with reasons for those whose file is missing or not a single one, and the files.
    """
    paths = rows["path"].combine_chunks()
    found, counts = locate(paths, files)
    several = "several files are named ", rows["path"], ", with different endings or in several spellings"
    rows = reject(rows, pa.array(counts > 1), SEVERAL_FILES, *several)
    missing = pa.array((counts == 0) & mask_of(pc.is_valid(paths)))
    rows = reject(
        rows, missing, MISSING_FILE, "there is no file ", rows["path"], _near(paths, missing, files)
    )
    is_exact = mask_of(pc.is_in(paths, files["uri"].combine_chunks()))
    return rows, FoundFiles(found, int(np.count_nonzero((found >= 0) & ~is_exact)))


def locate(paths: pa.Array, files: pa.Table) -> tuple[Int64, Int64]:
    """Find the file of each path.

    Tried one after the other: the path as it is, without the ending of the file, with ``/`` in place of each
    backslash, and in the composed form of Unicode (NFC): a Mac writes é as e and an accent (NFD).

    Args:
        paths: string [N].
        files: LISTING_SCHEMA.

    Returns:
        int64 [N], row of the file, -1 if there is none or not a single one; and how many files there are.
    """
    found = _positions(paths, files["uri"])
    counts = (found >= 0).astype(np.int64)
    # Ignored files do not count here: a text beside an image often has the same name.
    usable = np.flatnonzero(mask_of(pc.equal(files["status"], Status.TO_READ)))
    uris = files["uri"].take(pa.array(usable))
    for spelled, of_name in _FORMS:
        rest = np.flatnonzero((counts == 0) & mask_of(pc.is_valid(paths)))
        if not len(rest):
            break
        names = of_name(_composed(uris) if spelled is _composed else uris)
        first, counts[rest] = _counted(spelled(paths.take(pa.array(rest))), names, usable)
        found[rest] = np.where(counts[rest] == 1, first, -1)
    return found, counts


def _same(texts: Texts) -> Texts:
    return texts


def _stems(uris: Texts) -> Texts:
    return pc.replace_substring_regex(uris, _ENDING, "")


def _with_slashes(paths: Texts) -> Texts:
    return pc.replace_substring(paths, "\\", "/")


def _composed(texts: Texts) -> Texts:
    return pc.utf8_normalize(_with_slashes(texts), "NFC")


# Forms of paths and of names of files that are compared, one after the other.
_FORMS = (
    (_same, _stems),
    (_with_slashes, _same),
    (_with_slashes, _stems),
    (_composed, _same),
    (_composed, _stems),
)


def _near(paths: Texts, missing: pa.Array, files: pa.Table) -> pa.Array:
    """Return what to add to the message of each missing path: a file that differs in case; else empty."""
    messages = np.full(len(paths), "", object)
    at = np.flatnonzero(mask_of(missing))
    if len(at):
        known = pc.utf8_lower(_composed(files["uri"]))
        near = _positions(pc.utf8_lower(_composed(paths.take(pa.array(at)))), known)
        for row, file in zip(at[near >= 0].tolist(), near[near >= 0].tolist(), strict=True):
            messages[row] = f"; there is {files['uri'][file].as_py()}"
    return pa.array(messages, pa.string())


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
    is_broken = not missing.num_rows and pc.all(pc.equal(rows["reason"], BROKEN_ROW)).as_py()
    raise NotFoundError(
        f"no row of the table names a file of the source; {first}",
        "correct the rows, or source.columns.features, source.columns.label_columns, source.table.delimiter"
        if is_broken
        else _remedy(first_path or "", files),
    )


def _remedy(path: str, files: pa.Table) -> str:
    """Return the likely reason why no file has a path."""
    prefix = _prefix_of(path, files) if path else None
    if prefix is not None:
        return f"did you mean --set source.table.prefix={prefix}?"
    return "look at source.columns.image and source.table.prefix"


def _prefix_of(path: str, files: pa.Table) -> str | None:
    """Return the folder below which a file has this path, with its ending or without; None if none has."""
    tail = "/" + path.replace("\\", "/").removeprefix("./")
    for uris in (files["uri"], pc.replace_substring_regex(files["uri"], _ENDING, "")):
        found = uris.filter(pc.ends_with(uris, tail))
        if len(found):
            return str(found[0].as_py().removesuffix(tail))
    return None


def _counted(paths: Texts, names: Texts, numbers: Int64) -> tuple[Int64, Int64]:
    """Return a file that has each path as its name (or -1), and how many have.

    Args:
        paths: string [N].
        names: string [files], names of files in some form, which several may share.
        numbers: int64 [files].
    """
    grouped = pa.table({"name": names, "file": numbers}).group_by("name")
    grouped = grouped.aggregate([("file", "min"), ("file", "count")])
    at = _positions(paths, grouped["name"])
    if not grouped.num_rows:
        return at, np.zeros(len(paths), np.int64)
    first, count = grouped["file_min"].to_numpy(), grouped["file_count"].to_numpy()
    return np.where(at >= 0, first[at], -1), np.where(at >= 0, count[at], 0)


def _positions(wanted: Texts, known: Texts) -> Int64:
    """Return the position of each text in ``known``: int64, -1 if it is not there or null."""
    at = pc.fill_null(pc.index_in(wanted, one_chunk(known), skip_nulls=True), -1)
    return np.asarray(at.to_numpy(zero_copy_only=False), np.int64).copy()
