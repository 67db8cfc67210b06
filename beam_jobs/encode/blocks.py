"""Blocks: neighbouring files that are encoded together, and their files in the spool.

*Cutting.* The files, in the order of their URIs, are cut by their sizes. A block has at most ``block_images``
files, and blocks get shorter towards the end, so that all processes end at about the same time. Blocks that
an earlier run finished stay as that run cut them, and only the files between them are cut anew. So a run may
be continued by any number of processes, and after files were added or removed.

*Storing.* A block's digest names its files in the spool::

    blocks/<digest>.spool      the stored images, one after the other; behind each its mask if it has one
    blocks/<digest>.further    URIs of files with further pictures, which are left out; only if there are any
    blocks/<digest>.arrow      FACTS_SCHEMA and the features that reading finds, one row per file; written
                               last, so that it marks a complete block

*Contents that are not decoded.* Two more files list the digests of contents that the previous version stores,
and of those that must not come back. Every worker reads them.
"""

from __future__ import annotations

import json
import mmap
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import ImageConfig
from shardmill.beam_jobs.execution.verdicts import NO_VERDICTS, Verdicts, holds_old_verdicts
from shardmill.beam_jobs.reasons import PASSING_REASONS
from shardmill.beam_jobs.schemas import FACTS_SCHEMA, PLACED_FACTS_SCHEMA, Status, reference_schema
from shardmill.beam_jobs.tables.features import PREFIX, features_of, with_features
from shardmill.beam_jobs.tables.ids import contents_of
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import CorruptDataError, NotFoundError
from shardmill.infra.format.known_features import MASK_BYTES
from shardmill.infra.readable import counted
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json

BLOCKS_FOLDER, _FURTHER = "blocks", ".further"
REFERENCES_FILE = "references.arrow"


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring files: the rows [start, start + length) of those that are read."""

    digest: str
    start: int
    length: int


def spool_file(digest: str) -> str:
    """Return the path of a block's stored images, relative to the spool."""
    return f"{BLOCKS_FOLDER}/{digest}.spool"


def facts_file(digest: str) -> str:
    """Return the path of a block's table, relative to the spool."""
    return f"{BLOCKS_FOLDER}/{digest}.arrow"


# A photograph takes a fixed time, and that time again for each so many bytes of its file.
_BYTES_OF_A_FILE = 24 << 10
# A block takes half of the work that is left for a process, but at least a twentieth of all its work, and at
# least as long as LEAST_FILES files of the mean size: each block costs time of its own.
_NEXT_PART, _LEAST_PART = 1 / 2, 1 / 20
LEAST_FILES = 4


def cut_blocks(
    references: pa.Table, most: int, processes: int = 0, finished: Sequence[Block] = ()
) -> list[Block]:
    """Cut files into blocks.

    Args:
        references: REFERENCE_SCHEMA, sorted by URI.
        most: largest number of files of a block.
        processes: how many blocks are encoded at a time; 0 if that is not known: then all blocks are long.
        finished: blocks that stay as they are, in order (``find_finished``).
    """
    references = references.combine_chunks()
    costs = references["size_bytes"].to_numpy().astype(np.float64) + _BYTES_OF_A_FILE
    until = np.concatenate([[0.0], np.cumsum(costs)])
    edges = [0, *(edge for block in finished for edge in (block.start, block.start + block.length))]
    gaps = list(zip(edges[::2], [*edges[1::2], references.num_rows], strict=True))
    left = whole = sum(until[stop] - until[start] for start, stop in gaps)
    least = LEAST_FILES * whole / max(1, sum(stop - start for start, stop in gaps))
    blocks: list[Block] = []
    for (start, stop), behind in zip(gaps, [*((block,) for block in finished), ()], strict=True):
        while start < stop:
            length = min(most, stop - start)
            if processes:
                share = max(_NEXT_PART * left / processes, _LEAST_PART * whole / processes, least)
                fitting = int(np.searchsorted(until, until[start] + share, "right")) - 1 - start
                length = min(length, max(1, fitting))
            blocks.append(Block(block_digest(references.slice(start, length)), start, length))
            left -= until[start + length] - until[start]
            start += length
        blocks += behind
    return blocks


def find_finished(spool: Storage, references: pa.Table) -> list[Block]:
    """Return, in order, the blocks that an earlier run finished and whose files are still the same.

    A file that was added within a block, or is missing there, makes it another block.

    Args:
        spool: as an earlier run left it, with its own references.
        references: REFERENCE_SCHEMA, sorted by URI, of this run.
    """
    finished, found = finished_blocks(spool), list[Block]()
    if not finished:
        return found
    uris, stop = references["uri"], 0
    try:
        with spool.open_input(REFERENCES_FILE) as stream, pa.ipc.open_file(stream) as reader:
            if reader.schema.names != reference_schema(references).names:
                return found
            for batch in map(reader.get_batch, range(reader.num_record_batches)):
                if (digest := block_digest(batch)) not in finished:
                    continue
                start = bisect_left(uris, batch["uri"][0].as_py(), stop, key=lambda uri: uri.as_py())
                if block_digest(references.slice(start, batch.num_rows)) == digest:
                    stop = start + batch.num_rows
                    found.append(Block(digest, start, batch.num_rows))
    except (NotFoundError, pa.ArrowException):
        return []  # its spool was half removed
    return found


def block_digest(references: pa.Table | pa.RecordBatch) -> str:
    """Return the digest of all that is known of a block's files before they are read."""
    columns = (references[name] for name in reference_schema(references).names)
    return digest_of(
        [
            [value.hex() for value in column.to_pylist()]
            if column.type == pa.binary()
            else column.to_pylist()
            for column in columns
        ],
        length=24,
    )


def write_references(spool: Storage, references: pa.Table, blocks: list[Block]) -> None:
    """Write the files to be read to the spool, a record batch a block."""
    schema = reference_schema(references)
    # A file has one dictionary for each column.
    references = references.select(schema.names).combine_chunks().unify_dictionaries()
    with spool.atomic_writer(REFERENCES_FILE) as stream, pa.ipc.new_file(stream, schema) as writer:
        for block in blocks:
            (batch,) = references.slice(block.start, block.length).combine_chunks().to_batches()
            writer.write_batch(batch)


def write_further(spool: Storage, digest: str, uris: Sequence[str]) -> None:
    """Note the files of a block that hold further pictures, which are left out."""
    if uris:
        spool.write_atomic(f"{BLOCKS_FOLDER}/{digest}{_FURTHER}", dump_json(uris).encode())


def further_pictures(spool: Storage, blocks: Sequence[Block], image: ImageConfig) -> str | None:
    """Return the warning about files with further pictures, which are left out.

    None if there are none, or if the settings say that the first picture is meant.
    """
    if image.pages == "first" and "pages" in image.model_fields_set:
        return None
    noted = {entry.path.rpartition("/")[2] for entry in spool.list_files(BLOCKS_FOLDER, recursive=False)}
    names = [name for block in blocks if (name := block.digest + _FURTHER) in noted]
    uris = [uri for name in names for uri in json.loads(spool.read_bytes(f"{BLOCKS_FOLDER}/{name}"))]
    if not uris:
        return None
    remedy = (
        "set image.pages: images (each page of a TIFF is one), channels (of one), or first (as now, without "
        "this warning)"
        if image.pages == "first"
        else f"image.pages = {image.pages!r} is for TIFF and DICOM"
    )
    return (
        f"{counted(len(uris), 'file')} with further pages, frames or pictures, such as {min(uris)}: only the "
        f"first of each is stored; {remedy}"
    )


def write_facts(spool: Storage, digest: str, facts: pa.Table) -> None:
    """Write a block's table (FACTS_SCHEMA and columns of features), which completes the block."""
    with spool.atomic_writer(facts_file(digest)) as stream, pa.ipc.new_file(stream, facts.schema) as writer:
        writer.write_table(facts)


def read_facts(spool: Storage, block: Block) -> pa.Table:
    """Read the table of a complete block (FACTS_SCHEMA and columns of features).

    Raises:
        CorruptDataError: it is not there, not readable, or has other columns or another number of rows.
    """
    path = facts_file(block.digest)
    try:
        with spool.open_input(path) as stream, pa.ipc.open_file(stream) as reader:
            facts = reader.read_all()
    except NotFoundError as error:
        raise CorruptDataError(f"block {block.digest} was not encoded: {path} is not there") from error
    except pa.ArrowException as error:
        raise CorruptDataError(
            f"{spool.uri}/{path} is not readable: {error}", f"delete {spool.uri} and run again"
        ) from error
    if facts.schema != with_features(FACTS_SCHEMA, features_of(facts)):
        raise CorruptDataError(
            f"{spool.uri}/{path} was written by another release", f"delete {spool.uri} and run again"
        )
    if facts.num_rows != block.length:
        raise CorruptDataError(
            f"{spool.uri}/{path} has {facts.num_rows} rows, its block {block.length}",
            f"delete {spool.uri} and run again",
        )
    return facts


def reuse_blocks(spool: Storage, blocks: list[Block], verdicts: Verdicts = NO_VERDICTS) -> set[str]:
    """Digests of the blocks that need not be encoded again; of the others no table is left.

    A block is encoded again where a file in it could not be read, which may be over now, or was judged under
    other limits than ``verdicts``, and where its images are not all there any more: a spool may have been
    half removed when its run was killed. So is one that counts on contents which the version before does not
    store: another version may be the newest by now.
    """
    sizes = {entry.path: entry.size_bytes for entry in spool.list_files(BLOCKS_FOLDER, recursive=False)}
    stored = KnownContents.read(spool).stored
    reused = set()
    for block in blocks:
        if facts_file(block.digest) not in sizes:
            continue
        if _is_reusable(spool, block, sizes.get(spool_file(block.digest)), stored, verdicts):
            reused.add(block.digest)
        else:
            spool.delete(facts_file(block.digest))
    return reused


def _is_reusable(
    spool: Storage, block: Block, size_bytes: int | None, stored: DigestList, verdicts: Verdicts
) -> bool:
    try:
        facts = read_facts(spool, block)
    except CorruptDataError:
        return False
    has_retryable = pc.any(pc.is_in(facts["reason"], pa.array(PASSING_REASONS))).as_py()
    has_retryable = has_retryable or holds_old_verdicts(facts, verdicts)
    stored_before = facts.filter(pc.equal(facts["status"], Status.STORED_BEFORE))
    if has_retryable or not all(content in stored for content in contents_of(stored_before)):
        return False
    num_bytes = pc.sum(facts["stored_bytes"]).as_py() or 0
    if PREFIX + MASK_BYTES in facts.schema.names:
        num_bytes += pc.sum(facts[PREFIX + MASK_BYTES]).as_py() or 0
    return bool(size_bytes == num_bytes)


def is_finished(spool: Storage, digest: str) -> bool:
    """Tell whether a block is complete."""
    return spool.exists(facts_file(digest))


def facts_digest(spool: Storage) -> str:
    """Return a digest of the tables of all blocks, which changes if one is written again.

    A block whose files could not be read is encoded again under its old digest.
    """
    entries = spool.list_files(BLOCKS_FOLDER, recursive=False)
    tables = sorted((entry.path, entry.size_bytes, entry.mtime_ns) for entry in entries)
    return digest_of([table for table in tables if table[0].endswith(".arrow")], length=24)


def finished_blocks(spool: Storage) -> set[str]:
    """Digests of the blocks that are complete."""
    names = (entry.path.rpartition("/")[2] for entry in spool.list_files(BLOCKS_FOLDER, recursive=False))
    return {name.removesuffix(".arrow") for name in names if name.endswith(".arrow")}


def place_facts(facts: pa.Table, blocks: npt.NDArray[np.int32]) -> pa.Table:
    """Add the block and shard of each stored image to the facts of files.

    Args:
        facts: FACTS_SCHEMA and columns of features.
        blocks: int32 [rows], number of the block of each.

    Returns:
        PLACED_FACTS_SCHEMA and columns of features. The shards of STORED_BEFORE are still null: see
        ``fill_in_stored_before``.
    """
    status = facts["status"].to_numpy()
    columns = {name: facts[name] for name in facts.column_names}
    columns["block"] = pa.array(blocks, mask=status != Status.STORED)
    columns["shard"] = pa.nulls(facts.num_rows, pa.int32())
    schema = with_features(PLACED_FACTS_SCHEMA, features_of(facts))
    return pa.table(columns).select(schema.names).cast(schema)


_STORED_FILE, _PURGED_FILE = "contents/stored.sha256", "contents/purged.sha256"
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class DigestList:
    """A sorted list of digests of 32 bytes each, searched in place."""

    data: bytes | mmap.mmap = b""

    @classmethod
    def of(cls, digests: Iterable[bytes]) -> DigestList:
        """Sort digests into a list."""
        return cls(b"".join(sorted(digests)))

    def __len__(self) -> int:
        return len(self.data) // _DIGEST_BYTES

    def hexadecimal(self) -> list[str]:
        """Return the digests as hexadecimal text."""
        return [self.data[at : at + _DIGEST_BYTES].hex() for at in range(0, len(self.data), _DIGEST_BYTES)]

    def __contains__(self, digest: bytes) -> bool:
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            found = self.data[middle * _DIGEST_BYTES : (middle + 1) * _DIGEST_BYTES]
            if found == digest:
                return True
            low, high = (middle + 1, high) if found < digest else (low, middle)
        return False


@dataclass(frozen=True)
class KnownContents:
    """Files that a worker does not decode.

    Attributes:
        stored: digests of files whose stored image the previous version holds.
        purged: digests of files that must not come back.
    """

    stored: DigestList = DigestList()
    purged: DigestList = DigestList()

    def write(self, spool: Storage) -> None:
        """Write both lists to the spool."""
        for path, digests in ((_STORED_FILE, self.stored), (_PURGED_FILE, self.purged)):
            spool.write_atomic(path, bytes(digests.data))

    @classmethod
    def read(cls, spool: Storage) -> KnownContents:
        """Read the lists from the spool; a list that is not there is empty."""
        return cls(_read(spool, _STORED_FILE), _read(spool, _PURGED_FILE))


def _read(spool: Storage, path: str) -> DigestList:
    local = spool.local_path(path)
    try:
        if local is None:
            return DigestList(spool.read_bytes(path))
        with local.open("rb") as stream:  # one copy in memory for all threads and processes
            return DigestList(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except (NotFoundError, FileNotFoundError, ValueError):  # mmap refuses an empty file
        return DigestList()


NOTHING_KNOWN = KnownContents()
