"""Beam job 1: read the referenced files, and store images and facts as blocks in the spool.

The work is numbered by block. A worker reads the references from the spool and the settings from
``EncodeBlocks``, and writes its block to the spool. No image passes through Beam, so memory stays flat: a
worker holds one image at a time, and the facts of its block.
"""

from __future__ import annotations

import hashlib
import re
from functools import partial
from itertools import accumulate

import numpy as np
import pyarrow as pa

from beam_jobs.config import ImageConfig, PrepareConfig
from beam_jobs.encode.blocks import REFERENCES_FILE, block_digest, spool_file, write_facts
from beam_jobs.encode.known_digests import NOTHING_KNOWN, KnownContents
from beam_jobs.execution.pool.limits import MemoryRanOut, is_out_of_memory
from beam_jobs.execution.pool.notes import being_processed, counting_files
from beam_jobs.execution.task import Limits, Task
from beam_jobs.execution.trial import try_alone
from beam_jobs.execution.verdicts import NO_VERDICTS, Verdict, Verdicts, keep_verdict, known_verdicts
from beam_jobs.images.convert import LIBRARY_FAULTS, ImageFiltered, StoredImage, convert
from beam_jobs.images.metadata import facts_schema, values_of
from beam_jobs.schemas import (
    DECODE,
    FACTS_SCHEMA,
    FILTER,
    PURGED,
    READ,
    UNPROCESSABLE,
    FileRef,
    Status,
    file_refs,
)
from beam_jobs.sources.files.walking import SourceFault
from beam_jobs.sources.reading import Reader
from infra.codecs import ImageRejected, Pixels
from infra.codecs.measures.look import looks
from infra.codecs.measures.perceptual import perceptual_hashes
from infra.progress import log
from infra.storage.filesystem import Storage

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MESSAGE_CHARACTERS = 300
_HASH_COLUMN, _LOOK_COLUMN = map(FACTS_SCHEMA.get_field_index, ("perceptual_hash", "look"))


class EncodeBlocks(Task):
    """Encodes blocks of files into the spool, each by its number."""

    name = "EncodeBlocks"

    def __init__(self, source: Reader, spool: Storage, config: PrepareConfig) -> None:
        self._source = source
        self._spool = spool
        self._config = config

    @property
    def limits(self) -> Limits:
        """Return the limits of a file."""
        return Limits(self._config.runner.image_seconds, self._config.runner.image_memory_bytes)

    def open(self) -> None:
        """Open the references, and read the lists of files that are not decoded."""
        self._file = self._spool.open_input(REFERENCES_FILE)
        self._references = pa.ipc.open_file(self._file)
        self._contents = KnownContents.read(self._spool)
        self._verdicts = known_verdicts(self._spool, self._config.runner)

    def do(self, number: int) -> None:
        """Encode the block of this number."""
        references = self._references.get_batch(number)
        encode_block(references, self._source, self._spool, self._config, self._contents, self._verdicts)

    def close(self) -> None:
        """Close the references."""
        self._file.close()

    def find_culprit(self, file: FileRef) -> bool:
        """Decode a file alone, and keep a verdict if it is to blame; return whether there is one."""
        try:
            data = self._source.read(file)
        except SourceFault:
            return False  # the block finds the same, and makes its row
        sha256, limits = hashlib.sha256(data).digest(), self._config.runner
        if sha256 in known_verdicts(self._spool, limits):
            return True  # by a copy of the file
        reason, seen = try_alone(partial(_decode, config=self._config), data, self.limits)
        if reason is None:
            return False
        verdict = Verdict(sha256.hex(), reason, limits.image_seconds, limits.image_memory_bytes)
        keep_verdict(self._spool, verdict)
        log(f"{file.uri} is quarantined: {verdict.message} ({seen})", level="warning")
        return True


def _decode(data: bytes, config: PrepareConfig) -> None:
    convert(data, config.image, config.filter)


def encode_block(
    references: pa.RecordBatch,
    source: Reader,
    spool: Storage,
    config: PrepareConfig,
    contents: KnownContents = NOTHING_KNOWN,
    verdicts: Verdicts = NO_VERDICTS,
) -> None:
    """Read, convert and store the files of a block; its table is written last.

    Args:
        references: REFERENCE_SCHEMA.
        source: reads the files.
        spool: where the block goes.
        config: how images are stored and which are left out.
        contents: digests of files that need not be decoded.
        verdicts: digests of files that must not be decoded.
    """
    digest = block_digest(references)
    facts = _Facts(config.image)
    with spool.atomic_writer(spool_file(digest)) as stored:
        for file in counting_files(file_refs(references)):
            sha256, stage = None, READ
            try:
                data = source.read(file)
                sha256 = hashlib.sha256(data).digest()
                if sha256 in contents.purged:
                    raise ImageFiltered(PURGED, "its content was purged from this dataset")
                if sha256 in contents.stored:
                    facts.add_stored_before(sha256)
                    continue
                stage = DECODE
                if (verdict := verdicts.get(sha256)) is not None:
                    raise ImageRejected(verdict.reason, verdict.message)
                image = _convert(data, file, config)
            except ImageFiltered as reason:
                facts.add_lost(sha256, Status.FILTERED, FILTER, reason.reason, reason.message)
            except (SourceFault, ImageRejected) as reason:
                facts.add_lost(sha256, Status.QUARANTINED, stage, reason.reason, reason.message)
            except LIBRARY_FAULTS as error:
                what = f"cannot be processed: {error}".removesuffix(": ")
                facts.add_lost(sha256, Status.QUARANTINED, stage, UNPROCESSABLE, what)
            else:
                facts.add_stored(sha256, image)
                stored.write(image.image)
    write_facts(spool, digest, facts.table())


def _convert(data: bytes, file: FileRef, config: PrepareConfig) -> StoredImage:
    try:
        with being_processed(file):
            return convert(data, config.image, config.filter)
    except Exception as error:
        if is_out_of_memory(error):
            raise MemoryRanOut(file) from error
        raise


class _Facts:
    """Collects a block's rows as tuples, so that Arrow is called once a block, not once an image."""

    def __init__(self, image: ImageConfig) -> None:
        self._image = image
        self._schema = facts_schema(image)
        self._rows: list[tuple[object, ...]] = []
        self._thumbnails: list[Pixels] = []  # whole images, and some of them without their borders
        self._shown: list[tuple[int, int]] = []  # row and number of thumbnails of each image
        self._offset_bytes = 0

    def add_lost(self, sha256: bytes | None, status: Status, stage: str, reason: str, message: str) -> None:
        row = (sha256, status, stage, reason, stable_message(message))
        self._rows.append(row + (None,) * (len(self._schema) - len(row)))

    def add_stored_before(self, sha256: bytes) -> None:
        """Add a file whose stored image and facts are in the previous version."""
        row = (sha256, Status.STORED_BEFORE)
        self._rows.append(row + (None,) * (len(self._schema) - len(row)))

    def add_stored(self, sha256: bytes, image: StoredImage) -> None:
        self._shown.append((len(self._rows), len(image.thumbnails)))
        self._thumbnails += image.thumbnails
        source, (mean, deviation) = image.source, image.statistics
        self._rows.append(
            (
                sha256, Status.STORED, None, None, None,
                self._offset_bytes, len(image.image), image.height, image.width, image.stored_from,
                source.format, source.color, source.height, source.width, source.orientation,
                source.icc_profile, source.had_alpha, source.salvaged, None, None, mean, deviation,
                *values_of(image.metadata, self._image),
            )
        )  # fmt: skip
        self._offset_bytes += len(image.image)

    def table(self) -> pa.Table:
        columns = list(zip(*self._rows, strict=True))
        columns[_HASH_COLUMN], columns[_LOOK_COLUMN] = self._measured()
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self._schema)

    def _measured(self) -> tuple[tuple[int | None, ...], tuple[bytes | None, ...]]:
        """Return hash and look of each row; None for a row without image or with one that has none."""
        hashes: list[int | None] = [None] * len(self._rows)
        seen: list[bytes | None] = [None] * len(self._rows)
        if not self._shown:
            return tuple(hashes), tuple(seen)
        thumbnails = np.stack(self._thumbnails)
        counts = [count for _, count in self._shown]
        firsts = [0, *accumulate(counts)][:-1]
        views = looks(thumbnails)
        whole = perceptual_hashes(thumbnails[firsts])
        for (row, count), first, value in zip(self._shown, firsts, whole, strict=True):
            hashes[row] = value
            # What is inside a border may be blank, or a blank border may be all there is.
            seen[row] = b"".join(view for view in views[first : first + count] if view) or None
        return tuple(hashes), tuple(seen)


def stable_message(message: str) -> str:
    """Make a library's message fit to store: equal in every run, valid text, one line, limited in length."""
    text = _ADDRESS.sub("", message).encode("utf-8", "backslashreplace").decode("utf-8")
    text = " ".join(text.split())
    return text if len(text) <= _MESSAGE_CHARACTERS else text[: _MESSAGE_CHARACTERS - 1] + "…"
