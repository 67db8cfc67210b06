"""Beam job 1: read the referenced files, and store images and facts as blocks in the spool.

The work is numbered by block. A worker reads the references from the spool and the settings from
``EncodeBlocks``, and writes its block to the spool. No image passes through Beam, so memory stays flat: a
worker holds one image at a time, and the facts of its block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pyarrow as pa

from shardmill.beam_jobs.config import FilterConfig, ImageConfig, PrepareConfig
from shardmill.beam_jobs.encode.blocks import (
    NOTHING_KNOWN,
    REFERENCES_FILE,
    KnownContents,
    block_digest,
    is_finished,
    spool_file,
    write_facts,
    write_further,
)
from shardmill.beam_jobs.encode.facts import FactsOfBlock, SourceBytes, needed_metadata, stable_message
from shardmill.beam_jobs.encode.masks import MaskConverter, StoredMask
from shardmill.beam_jobs.execution.pool.limits import MemoryRanOut, is_out_of_memory
from shardmill.beam_jobs.execution.pool.notes import being_processed, counting_files
from shardmill.beam_jobs.execution.pool.sandbox import try_alone
from shardmill.beam_jobs.execution.pool.shares import memory_for
from shardmill.beam_jobs.execution.task import Limits, Task
from shardmill.beam_jobs.execution.verdicts import (
    NO_VERDICTS,
    Verdict,
    Verdicts,
    keep_verdict,
    known_verdicts,
)
from shardmill.beam_jobs.reasons import (
    AI_MADE,
    ASPECT,
    CRASHED,
    FILTER_REASONS,
    OUT_OF_MEMORY,
    PURGED,
    TOO_SMALL,
    UNPROCESSABLE,
)
from shardmill.beam_jobs.schemas import DECODE, FILTER, READ, FileRef, Status, file_refs
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kind_modules import Reader
from shardmill.infra.codecs import ImageRejected
from shardmill.infra.codecs.memory import decoding_bytes
from shardmill.infra.codecs.metadata import NOTHING, Metadata
from shardmill.infra.codecs.pages.further import has_further_pictures
from shardmill.infra.codecs.prepare import LIBRARY_FAULTS, StoredImage, prepare_image
from shardmill.infra.errors import UnusableInput
from shardmill.infra.progress import log
from shardmill.infra.storage.filesystem import Storage


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

    @property
    def place(self) -> str:
        """Return the URI of the spool."""
        return self._spool.uri

    def open(self) -> None:
        """Open the references, and read the lists of files that are not decoded."""
        self._file = self._spool.open_input(REFERENCES_FILE)
        self._references = pa.ipc.open_file(self._file)
        self._contents = KnownContents.read(self._spool)
        self._verdicts = known_verdicts(self._spool, self._config.runner)

    def do(self, block: int) -> None:
        """Encode a block, unless it was finished since the run began.

        A cluster that restarts a job has all of its blocks done again.
        """
        references = self._references.get_batch(block)
        if is_finished(self._spool, block_digest(references)):
            return
        encode_block(references, self._source, self._spool, self._config, self._contents, self._verdicts)

    def close(self) -> None:
        """Close the references."""
        self._file.close()

    def file_of(self, block: int, number: int) -> FileRef:
        """Return a file of a block, from the references in the spool."""
        with self._spool.open_input(REFERENCES_FILE) as stream, pa.ipc.open_file(stream) as references:
            return next(file_refs(references.get_batch(block).slice(number, 1)))

    def find_culprit(self, file: FileRef) -> bool:
        """Decode a file alone, and keep a verdict if it is to blame; return whether there is one."""
        limits = self._config.runner
        if (unread := SourceBytes.unread(self._source, file)) is not None:
            if unread.decoded in known_verdicts(self._spool, limits):
                return True
            reason, seen = try_alone(partial(_read_alone, reader=self._source, file=file), b"", self.limits)
            if reason in (CRASHED, OUT_OF_MEMORY):
                self._judge(unread, reason, seen)
                return True
            if reason is not None:
                return False  # long, as what lies before it in its file may be: reading has no limit of time
        try:
            source = SourceBytes.read(self._source, file)
        except SourceFault:
            return False  # the block finds the same, and makes its row
        if source.decoded in known_verdicts(self._spool, limits):
            return True  # a copy of the file was found guilty already
        decode = partial(_decode, source=replace(source, image=b""), config=self._config)
        with memory_for(_needed_bytes(source, self._config)):
            reason, seen = try_alone(decode, source.image, self.limits)
        if reason is None:
            return False
        self._judge(source, reason, seen)
        return True

    def _judge(self, source: SourceBytes, reason: str, seen: str) -> None:
        """Keep a verdict on a file."""
        limits = self._config.runner
        verdict = Verdict(source.decoded.hex(), reason, limits.image_seconds, limits.image_memory_bytes)
        keep_verdict(self._spool, verdict)
        log(f"{source.file.uri} is quarantined: {verdict.message} ({seen})", level="warning")


def _read_alone(_: bytes, reader: Reader, file: FileRef) -> None:
    """Read an image, as a call in the sandbox does."""
    reader.read(file)


def _decode(image: bytes, source: SourceBytes, config: PrepareConfig) -> None:
    """Convert an image and its mask, as a call in the sandbox does."""
    _convert(replace(source, image=image), config, _masks_of(config))


def _needed_bytes(source: SourceBytes, config: PrepareConfig) -> int:
    """Return how much memory the conversion of an image, and then of its mask, takes at most (bytes)."""
    is_file = source.file.mask is not None and source.file.mask.drawn is None
    read = [source.image, *([source.mask] if source.mask is not None and is_file else [])]
    return max(decoding_bytes(data, config.image) for data in read)


def _masks_of(config: PrepareConfig) -> MaskConverter | None:
    has_masks = config.source.label_kind == "mask"
    return MaskConverter(config.source.masks, config.image) if has_masks else None


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
    digest, masks = block_digest(references), _masks_of(config)
    facts, further = FactsOfBlock(config), list[str]()
    with spool.atomic_writer(spool_file(digest)) as stored:
        for file in counting_files(file_refs(references)):
            found, stage = SourceBytes.unread(source, file), DECODE
            try:
                if found is not None:
                    _check_verdict(found, verdicts)
                found, stage = None, READ
                found = _read(source, file)
                if found.sha256 in contents.purged:
                    raise ImageFiltered(PURGED, "its content was purged from this dataset")
                if found.content in contents.stored:
                    facts.add_stored_before(found)
                    continue
                stage = DECODE
                _check_verdict(found, verdicts)
                with memory_for(_needed_bytes(found, config)), _noted(file):
                    image, mask = _convert(found, config, masks)
                    if has_further_pictures(found.image, config.image.pages):
                        further.append(file.uri)
                    if file.mask is not None and has_further_pictures(found.mask or b"", "first"):
                        further.append(file.mask.uri)
            except (ImageFiltered, SourceFault, ImageRejected, *LIBRARY_FAULTS) as fault:
                facts.add_lost(found, *_lost(fault, stage))
            else:
                facts.add_stored(found, image, mask)
                stored.write(image.image)
                if mask is not None:
                    stored.write(mask.mask)
    write_further(spool, digest, further)
    write_facts(spool, digest, facts.table())


def _check_verdict(source: SourceBytes, verdicts: Verdicts) -> None:
    """Refuse a file that must not be decoded.

    Raises:
        ImageRejected: there is a verdict on it.
    """
    if (verdict := verdicts.get(source.decoded)) is not None:
        raise ImageRejected(verdict.reason, verdict.message)


def _read(source: Reader, file: FileRef) -> SourceBytes:
    """Read a file; where reading decodes, the pool hears which file it is."""
    if SourceBytes.unread(source, file) is None:
        return SourceBytes.read(source, file)
    with _noted(file, is_timed=False):
        return SourceBytes.read(source, file)


def _lost(fault: Exception, stage: str) -> tuple[Status, str, str, str]:
    """Return status, stage, reason and message of a file that is not stored."""
    if isinstance(fault, ImageFiltered):
        return Status.FILTERED, FILTER, fault.reason, stable_message(fault.message)
    if isinstance(fault, UnusableInput):
        status = Status.FILTERED if fault.reason in FILTER_REASONS else Status.QUARANTINED
        return status, stage, fault.reason, stable_message(fault.message)
    what = f"cannot be processed: {fault}".removesuffix(": ")
    return Status.QUARANTINED, stage, UNPROCESSABLE, stable_message(what)


def _convert(
    source: SourceBytes, config: PrepareConfig, masks: MaskConverter | None
) -> tuple[StoredImage, StoredMask | None]:
    image = convert(source.image, config.image, config.filter)
    if masks is None or source.mask is None or source.file.mask is None:
        return image, None
    make = masks.convert if source.file.mask.drawn is None else masks.draw
    return image, make(source.mask, source.file.mask.uri, image.source)


@contextmanager
def _noted(file: FileRef, *, is_timed: bool = True) -> Iterator[None]:
    """Note the file during this block, and tell the pool if memory runs out."""
    try:
        with being_processed(is_timed=is_timed):
            yield
    except Exception as error:
        if is_out_of_memory(error):
            raise MemoryRanOut(file) from error
        raise


class ImageFiltered(UnusableInput):
    """A filter of the configuration excludes this image.

    Attributes:
        reason: "too_small", "aspect" or "ai_made".
        message: the size and the limit, or what the file declares.
    """


def convert(data: bytes, image: ImageConfig, rules: FilterConfig) -> StoredImage:
    """Convert source bytes to their stored form.

    Raises:
        shardmill.infra.codecs.ImageRejected: the bytes are not a complete image.
        ImageFiltered: a filter excludes the image, by its metadata, size or aspect.
    """
    metadata = needed_metadata(data, image, rules)
    _check_origin(metadata, rules)
    stored = prepare_image(data, image, partial(check_size, rules=rules))
    return stored if metadata is NOTHING else replace(stored, metadata=metadata)


def _check_origin(metadata: Metadata, rules: FilterConfig) -> None:
    """Check what a file declares of its origin against the filters.

    Raises:
        ImageFiltered: it declares that a generative model made it, and such images are left out.
    """
    if rules.ai_made == "drop" and metadata.is_ai_made:
        raise ImageFiltered(AI_MADE, f"it declares the digital source type {metadata.digital_source_type}")


def check_size(height: int, width: int, rules: FilterConfig) -> None:
    """Check the size of an upright image (pixels) against the filters.

    Raises:
        ImageFiltered: the image is smaller or longer than they allow.
    """
    if width < rules.min_width or height < rules.min_height:
        raise ImageFiltered(
            TOO_SMALL, f"{width}×{height} pixels, the least is {rules.min_width}×{rules.min_height}"
        )
    if rules.max_aspect is not None and max(height, width) > rules.max_aspect * min(height, width):
        raise ImageFiltered(
            ASPECT, f"{width}×{height} pixels: longer than {rules.max_aspect:g} times the shorter side"
        )
