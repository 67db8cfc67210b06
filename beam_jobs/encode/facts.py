"""The facts of the files of a block: a row for each, as reading and converting it found them.

``_described`` has the value of each column that describes an image. What metadata and masks say are features:
columns of the facts until the version is planned, then columns of the listing, like features of a table.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pyarrow as pa

from shardmill.beam_jobs.config import FilterConfig, ImageConfig, PrepareConfig
from shardmill.beam_jobs.encode.masks import StoredMask
from shardmill.beam_jobs.schemas import FACTS_SCHEMA, IMAGE_NAMES, FileRef, Status
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kind_modules import Reader
from shardmill.beam_jobs.tables.features import with_features
from shardmill.beam_jobs.tables.ids import content_of
from shardmill.infra.codecs import Pixels
from shardmill.infra.codecs.measures import looks, perceptual_hashes
from shardmill.infra.codecs.metadata import NOTHING, Metadata, read_metadata
from shardmill.infra.codecs.prepare import StoredImage
from shardmill.infra.codecs.quality import Quality, of_levels
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import METADATA_FEATURES, READ_MASK_FEATURES
from shardmill.infra.preparation import SampleKind
from shardmill.infra.readable import shortened
from shardmill.infra.strict_json import dump_json


def features_found(config: PrepareConfig) -> list[Feature]:
    """Return the features that reading the images finds."""
    has_masks = config.source.label_kind == "mask"
    return [
        *(METADATA_FEATURES[name] for name in config.image.metadata),
        *(READ_MASK_FEATURES if has_masks else ()),
    ]


def facts_schema(config: PrepareConfig) -> pa.Schema:
    """Return FACTS_SCHEMA and columns of the features that reading finds."""
    return with_features(FACTS_SCHEMA, features_found(config))


def needed_metadata(data: bytes, image: ImageConfig, rules: FilterConfig) -> Metadata:
    """Read the metadata of a file if the configuration asks for any."""
    return read_metadata(data) if image.metadata or rules.ai_made == "drop" else NOTHING


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MESSAGE_CHARACTERS = 300


@dataclass(frozen=True)
class SourceBytes:
    """The bytes of an image and of its mask, and their digests.

    Attributes:
        file: names both.
        image, mask: the files; ``mask`` is None if the image has none.
        sha256, mask_sha256: of the files.
    """

    file: FileRef
    image: bytes
    sha256: bytes
    mask: bytes | None = None
    mask_sha256: bytes | None = None

    @classmethod
    def read(cls, reader: Reader, file: FileRef) -> SourceBytes:
        """Read a file and its mask.

        Raises:
            SourceFault: one of them cannot be read.
        """
        image = reader.read(file)
        sha256 = hashlib.sha256(image).digest()
        if file.mask is None:
            return cls(file, image, sha256)
        try:
            mask = reader.read(file.mask) if file.mask.drawn is None else file.mask.drawn
        except SourceFault as fault:
            raise SourceFault(fault.reason, f"its mask {file.mask.uri}: {fault.message}") from fault
        return cls(file, image, sha256, mask, hashlib.sha256(mask).digest())

    @classmethod
    def unread(cls, reader: Reader, file: FileRef) -> SourceBytes | None:
        """Return what stands for a file before it is read, if reading decodes it, as a frame of a video.

        Its digest is of name and time of change.
        """
        if not getattr(reader, "decodes", False):
            return None
        name = f"{file.uri}\0{file.mtime_ns}".encode("utf-8", "surrogateescape")
        return cls(file, b"", hashlib.sha256(name).digest())

    @property
    def content(self) -> bytes:
        """The content: see shardmill.beam_jobs.tables.ids."""
        return content_of(self.sha256, self.mask_sha256)

    @property
    def decoded(self) -> bytes:
        """The content that decoders see: a mask that is drawn from shapes is none of it."""
        is_file = self.file.mask is not None and self.file.mask.drawn is None
        return self.content if is_file else content_of(self.sha256, None)


_SAMPLES_KEY = b"shardmill.samples"


def _noted(samples: Counter[SampleKind | None]) -> dict[bytes, bytes]:
    """Return the metadata that hold the number of stored images with each kind of samples."""
    rows = [[kind and kind.dtype, kind and kind.channels, count] for kind, count in samples.items()]
    return {_SAMPLES_KEY: dump_json(rows).encode()}


def noted_samples(schema: pa.Schema) -> Counter[SampleKind | None]:
    """Return what ``FactsOfBlock.table`` noted: kind of samples -> number of stored images.

    None stands for those of images that the previous version stores.
    """
    rows = json.loads((schema.metadata or {}).get(_SAMPLES_KEY, b"[]"))
    return Counter({SampleKind(dtype, channels) if dtype else None: count for dtype, channels, count in rows})


# A block has these columns at once.
_OF_BLOCK = ("perceptual_hash", "look", "luma_p5", "luma_p99", "luma_entropy")


def _described(source: SourceBytes, image: StoredImage) -> dict[str, object]:
    """Return the values of IMAGE_COLUMNS, besides those of ``image.measures``."""
    found = image.source
    return {
        "stored_bytes": len(image.image),
        "height": image.height,
        "width": image.width,
        "stored_from": image.stored_from,
        "source_format": found.format,
        "source_color": f"{found.color}; {found.note}" if found.note else found.color,
        "source_height": found.height,
        "source_width": found.width,
        "orientation": found.orientation,
        "icc_profile": found.icc_profile,
        "had_alpha": found.had_alpha,
        "salvaged": found.salvaged,
        **dict.fromkeys(_OF_BLOCK),
        "luma_sharpness": image.measures.quality.luma_sharpness,
        "border_share": image.measures.quality.border_share,
    }


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
        self._quality: list[Quality] = []  # of each image
        self._offset_bytes = 0
        self._samples: Counter[SampleKind | None] = Counter()  # None: of images stored before

    def add_lost(
        self, source: SourceBytes | None, status: Status, stage: str, reason: str, message: str
    ) -> None:
        """Add a file that is not stored; ``source`` is None if it was not read."""
        sha256 = source.sha256 if source else None
        self._add((sha256, status, stage, reason, message), self._of_mask(source, None))

    def add_stored_before(self, source: SourceBytes) -> None:
        """Add a file whose stored image and facts are in the previous version."""
        self._samples[None] += 1
        self._add((source.sha256, Status.STORED_BEFORE), self._of_mask(source, None))

    def add_stored(self, source: SourceBytes, image: StoredImage, mask: StoredMask | None) -> None:
        """Add a file whose image, and mask if it has one, are next in the block."""
        self._samples[image.samples] += 1
        self._shown.append((len(self._rows), len(image.measures.thumbnails)))
        self._thumbnails += image.measures.thumbnails
        self._quality.append(image.measures.quality)
        values = _described(source, image)
        row: list[object] = [source.sha256, Status.STORED, None, None, None, self._offset_bytes]
        row.append(image.source.group)
        row += [values[name] if name in values else getattr(image.measures, name) for name in IMAGE_NAMES]
        for name in self._image.metadata:
            value = getattr(image.metadata, name)
            row.append(int(value) if isinstance(value, bool) else value)
        self._add(tuple(row), self._of_mask(source, mask))
        self._offset_bytes += len(image.image) + (len(mask.mask) if mask is not None else 0)

    def _add(self, row: tuple[object, ...], features: tuple[object, ...]) -> None:
        unknown = (None,) * (len(self._schema) - len(row) - len(features))
        self._rows.append((*row, *unknown, *features))

    def _of_mask(self, source: SourceBytes | None, mask: StoredMask | None) -> tuple[object, ...]:
        """Return the values of READ_MASK_FEATURES; none if the images have no masks."""
        if not self._has_masks:
            return ()
        known = (None, None, None) if mask is None else (mask.labels, mask.pixels, len(mask.mask))
        sha256 = source.mask_sha256 if source else None
        return (*known, None if sha256 is None else sha256.hex())

    def table(self) -> pa.Table:
        """Return all rows: FACTS_SCHEMA and columns of features.

        Where the files decide about the samples of stored images, the schema's metadata count them.
        """
        columns = list(zip(*self._rows, strict=True))
        for name, measured in zip(_OF_BLOCK, self._measured(), strict=True):
            columns[self._schema.get_field_index(name)] = tuple(measured)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        return table if self._image.samples else table.replace_schema_metadata(_noted(self._samples))

    def _measured(self) -> list[list[object]]:
        """Return the columns of ``_OF_BLOCK``; None for a row without image or with one that has no value."""
        columns: list[list[object]] = [[None] * len(self._rows) for _ in _OF_BLOCK]
        if not self._shown:
            return columns
        thumbnails = np.stack(self._thumbnails)
        rows, counts = zip(*self._shown, strict=True)
        firsts = [0, *accumulate(counts)][:-1]
        views = looks(thumbnails)
        # What is inside a border may be blank, or a blank border may be all there is.
        seen = [
            b"".join(view for view in views[first : first + count] if view) or None
            for first, count in zip(firsts, counts, strict=True)
        ]
        levels = of_levels(self._quality)
        found = perceptual_hashes(thumbnails[firsts]), seen, *(levels[name] for name in _OF_BLOCK[2:])
        for column, values in zip(columns, found, strict=True):
            for row, value in zip(rows, values, strict=True):
                column[row] = value
        return columns


def stable_message(message: str) -> str:
    """Make a library's message fit to store: equal in every run, valid text, one line, limited in length."""
    text = _ADDRESS.sub("", message).encode("utf-8", "backslashreplace").decode("utf-8")
    text = " ".join(text.split())
    return shortened(text, _MESSAGE_CHARACTERS)
