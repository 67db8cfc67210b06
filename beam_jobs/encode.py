"""Beam job 1: references to stored images in spool blocks, with everything known of each.

The work is numbered by block. What a worker needs is in the spool (the references) and in ``EncodeBlocks``
(the settings); what it makes goes to the spool. No image passes through Beam, so memory stays flat: a worker
holds one image at a time, and of its block only what is known of the images.
"""

from __future__ import annotations

import hashlib
import re
from functools import partial

import numpy as np
import pyarrow as pa

from beam_jobs.blocks import (
    FACTS_SCHEMA,
    REFERENCES_FILE,
    block_digest,
    spool_file,
    write_facts,
)
from beam_jobs.config import PrepareConfig
from beam_jobs.contents import NOTHING_KNOWN, KnownContents
from beam_jobs.guard.attempts import guarded_block
from beam_jobs.guard.verdicts import NO_VERDICTS, Verdicts, known_verdicts
from beam_jobs.images import LIBRARY_FAULTS, ImageFiltered, StoredImage, convert
from beam_jobs.slots import computing
from beam_jobs.sources.folder import SourceFault, SourceFolder
from infra.codecs import ImageRejected, Pixels
from infra.codecs.perceptual import perceptual_hashes
from infra.contract import FILTERED, QUARANTINED
from infra.storage import Storage

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MESSAGE_CHARACTERS = 300
_HASH_COLUMN = FACTS_SCHEMA.get_field_index("perceptual_hash")


class EncodeBlocks:
    """Encodes blocks of files into the spool, each by its number. Implements beam_jobs.work.Work."""

    name = "EncodeBlocks"

    def __init__(self, source: SourceFolder, spool: Storage, config: PrepareConfig) -> None:
        self._source = source
        self._spool = spool
        self._config = config

    def open(self) -> None:
        """Open the references, and read what need not and what must not be decoded."""
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


def encode_block(
    references: pa.RecordBatch,
    source: SourceFolder,
    spool: Storage,
    config: PrepareConfig,
    contents: KnownContents = NOTHING_KNOWN,
    verdicts: Verdicts = NO_VERDICTS,
) -> None:
    """Read, convert and store the files of a block; its table is written last.

    Args:
        references: REFERENCE_SCHEMA.
        source: where the files are.
        spool: where the block goes.
        config: how images are stored and which are left out.
        contents: what need not be decoded.
        verdicts: what must not be.
    """
    digest = block_digest(references)
    facts = _Facts()
    with (
        guarded_block(source, spool, config, verdicts) as guard,
        spool.atomic_writer(spool_file(digest)) as stored,
        computing(),  # the slot is free again before the file goes to the disk
    ):
        columns = [references.column(i).to_pylist() for i in range(3)]
        for uri, size_bytes, mtime_ns in zip(*columns, strict=True):
            sha256 = stage = None
            try:
                stage = "read"
                data = source.read(uri, size_bytes, mtime_ns)
                sha256 = hashlib.sha256(data).digest()
                if sha256 in contents.purged:
                    raise ImageFiltered("purged", "its content was purged from this dataset")
                if sha256 in contents.stored:
                    facts.add_known(sha256)
                    continue
                stage = "decode"
                work = partial(convert, data, config.image, config.filter)
                image = guard.run(work, sha256, uri, size_bytes, mtime_ns)
            except ImageFiltered as reason:
                facts.add_lost(sha256, FILTERED, "filter", reason.reason, reason.message)
            except (SourceFault, ImageRejected) as reason:
                facts.add_lost(sha256, QUARANTINED, stage, reason.reason, reason.message)
            except LIBRARY_FAULTS as error:
                what = f"cannot be processed: {error}".removesuffix(": ")
                facts.add_lost(sha256, QUARANTINED, stage, "unprocessable", what)
            else:
                facts.add_stored(sha256, image)
                stored.write(image.image)
    write_facts(spool, digest, facts.table())


class _Facts:
    """Collects a block's rows as tuples, so that Arrow is called once a block, not once an image."""

    def __init__(self) -> None:
        self._rows: list[tuple[object, ...]] = []
        self._thumbnails: list[tuple[int, Pixels]] = []  # with the number of the row
        self._offset_bytes = 0

    def add_lost(
        self, sha256: bytes | None, outcome: str, stage: str | None, reason: str, message: str
    ) -> None:
        row = (sha256, outcome, stage, reason, stable_message(message))
        self._rows.append(row + (None,) * (len(FACTS_SCHEMA) - len(row)))

    def add_known(self, sha256: bytes) -> None:
        """A file whose stored form the parent version holds: its content is all there is to say here."""
        self._rows.append((sha256,) + (None,) * (len(FACTS_SCHEMA) - 1))

    def add_stored(self, sha256: bytes, image: StoredImage) -> None:
        self._thumbnails.append((len(self._rows), image.thumbnail))
        mean, deviation = image.statistics
        self._rows.append(
            (
                sha256, None, None, None, None,
                self._offset_bytes, len(image.image), image.height, image.width, image.stored_from,
                image.source_format, image.source_color, image.source_height, image.source_width,
                image.orientation, image.icc_profile, image.had_alpha, image.salvaged, None, mean, deviation,
            )
        )  # fmt: skip
        self._offset_bytes += len(image.image)

    def table(self) -> pa.Table:
        columns = list(zip(*self._rows, strict=True))
        columns[_HASH_COLUMN] = tuple(self._hashes())
        arrays = [pa.array(column, field.type) for column, field in zip(columns, FACTS_SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=FACTS_SCHEMA)

    def _hashes(self) -> list[int | None]:
        """The perceptual hash of each row; null where there is no image, or a blank one."""
        hashes: list[int | None] = [None] * len(self._rows)
        if self._thumbnails:
            rows, thumbnails = zip(*self._thumbnails, strict=True)
            for row, value in zip(rows, perceptual_hashes(np.stack(thumbnails)), strict=True):
                hashes[row] = value
        return hashes


def stable_message(message: str) -> str:
    """A library's message as it may be kept: the same in every run, valid text, one line, not endless."""
    text = _ADDRESS.sub("", message).encode("utf-8", "backslashreplace").decode("utf-8")
    text = " ".join(text.split())
    return text if len(text) <= _MESSAGE_CHARACTERS else text[: _MESSAGE_CHARACTERS - 1] + "…"
