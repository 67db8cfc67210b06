"""The facts of the files of a block: a row for each, as reading and converting it found them."""

from __future__ import annotations

import re
from itertools import accumulate

import numpy as np
import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.images.features import facts_schema, values_of
from shardmill.beam_jobs.images.masks import StoredMask
from shardmill.beam_jobs.schemas import FACTS_SCHEMA, Status
from shardmill.infra.codecs import Pixels
from shardmill.infra.codecs.measures import looks, perceptual_hashes
from shardmill.infra.codecs.prepare import StoredImage
from shardmill.infra.readable import shortened

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MESSAGE_CHARACTERS = 300
_HASH_COLUMN, _LOOK_COLUMN = map(FACTS_SCHEMA.get_field_index, ("perceptual_hash", "look"))


class FactsOfBlock:
    """Collects a block's rows as tuples, so that Arrow is called once a block, not once an image.

    Args:
        config: says which features reading finds.
    """

    def __init__(self, config: PrepareConfig) -> None:
        self._image = config.image
        self._has_masks = config.source.label_kind == "mask"
        self._schema = facts_schema(config)
        self._rows: list[tuple[object, ...]] = []
        self._thumbnails: list[Pixels] = []  # whole images, and some of them without their borders
        self._shown: list[tuple[int, int]] = []  # row and number of thumbnails of each image
        self._offset_bytes = 0

    def add_lost(
        self,
        sha256: bytes | None,
        mask_sha256: bytes | None,
        status: Status,
        stage: str,
        reason: str,
        message: str,
    ) -> None:
        """Add a file that is not stored."""
        self._add((sha256, status, stage, reason, message), self._of_mask(None, mask_sha256))

    def add_stored_before(self, sha256: bytes, mask_sha256: bytes | None) -> None:
        """Add a file whose stored image and facts are in the previous version."""
        self._add((sha256, Status.STORED_BEFORE), self._of_mask(None, mask_sha256))

    def add_stored(
        self, sha256: bytes, image: StoredImage, mask: StoredMask | None, mask_sha256: bytes | None
    ) -> None:
        """Add a file whose image, and mask if it has one, are next in the block."""
        self._shown.append((len(self._rows), len(image.thumbnails)))
        self._thumbnails += image.thumbnails
        source, (mean, deviation) = image.source, image.statistics
        row: tuple[object, ...] = (
            sha256, Status.STORED, None, None, None,
            self._offset_bytes, len(image.image), image.height, image.width, image.stored_from,
            source.format, source.color, source.height, source.width, source.orientation,
            source.icc_profile, source.had_alpha, source.salvaged, None, None, mean, deviation,
        )  # fmt: skip
        row += values_of(image.metadata, self._image)
        self._add(row, self._of_mask(mask, mask_sha256))
        self._offset_bytes += len(image.image) + (len(mask.mask) if mask is not None else 0)

    def _add(self, row: tuple[object, ...], features: tuple[object, ...]) -> None:
        unknown = (None,) * (len(self._schema) - len(row) - len(features))
        self._rows.append((*row, *unknown, *features))

    def _of_mask(self, mask: StoredMask | None, sha256: bytes | None) -> tuple[object, ...]:
        """Return the values of READ_MASK_FEATURES; none if the images have no masks."""
        if not self._has_masks:
            return ()
        known = (None, None, None) if mask is None else (mask.labels, mask.pixels, len(mask.mask))
        return (*known, None if sha256 is None else sha256.hex())

    def table(self) -> pa.Table:
        """Return all rows: FACTS_SCHEMA and columns of features."""
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
    return shortened(text, _MESSAGE_CHARACTERS)
