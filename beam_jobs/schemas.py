"""The data flow of ``prepare``: every Arrow table between two stages, and every status and stage.

One row of a table stands for one file of the source, until planning makes records of the files::

    stage      writes                                       read by
    ---------  -------------------------------------------  -----------------------------
    list       LISTING_SCHEMA: all files                    reuse, plan
    reuse      REFERENCE_SCHEMA: the files to be read       encode (a record batch a block)
    (both)     MEMBER_COLUMNS too, of images in containers  encode
    (both)     MASK_COLUMNS too, of images with masks       encode
    (both)     MASK_MEMBER_COLUMNS, of masks in containers  encode
    encode     FACTS_SCHEMA: what reading a file found      reuse
    reuse      PLACED_FACTS_SCHEMA: the same of all files   plan
    plan       PLAN_SCHEMA: the records to be written       assemble
    (spool)    SPOOLED_PLAN_SCHEMA: the same, in the spool  assemble (record batches a shard)

What is published belongs to the dataset on disk and is described in ``shardmill.infra.format.contract``:
``INPUTS_SCHEMA`` (one row per file), ``INDEX_SCHEMA`` (one row per record of a shard),
``NEAR_DUPLICATES_SCHEMA``, and ``IMAGE_COLUMNS``, which the tables below share with the index.

A source may give its images further features. Each is a column behind those of LISTING_SCHEMA, PLAN_SCHEMA,
SPOOLED_PLAN_SCHEMA and PREVIOUS_RECORDS_SCHEMA, named and described as
``shardmill.beam_jobs.tables.features`` says. The metadata of files (``image.metadata``) and what is known of
masks are such columns of FACTS_SCHEMA and PLACED_FACTS_SCHEMA too; they become columns of the listing before
planning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any, Final, NamedTuple

import pyarrow as pa

from shardmill.beam_jobs.reasons import UNREADABLE as UNREADABLE  # where kinds of users expect it
from shardmill.infra.format.contract import FILTERED, IMAGE_COLUMNS, INDEX_SCHEMA, QUARANTINED


class FileRef(NamedTuple):  # made a few times for each image, in a third of the time of a frozen dataclass
    """An image of the source as it was listed: a file of its own, or a member of a container.

    A container is a file that holds many images: an archive, or a table or record file whose rows are images.

    Attributes:
        uri: relative to the source; see shardmill.infra.storage.locations. Of a member:
            ``<container>#<name in it>``.
        size_bytes: length of the image; of a member 0 if that is not known before it is read.
        mtime_ns: time of the last change of the file or of the container (nanoseconds since 1970); 0 if the
            source does not tell.
        container: URI of the container, relative to the source; None for a file of its own.
        position: place in the container, in the unit of its kind (byte offset, number of a row); else None.
        mask: the mask of the image; None if the source has no masks.
        drawn: of a mask that is drawn from shapes, these (``sources.annotations.drawing``); None of a file.
    """

    uri: str
    size_bytes: int
    mtime_ns: int
    container: str | None = None
    position: int | None = None
    mask: FileRef | None = None
    drawn: bytes | None = None


class Status(IntEnum):
    """State of a file: the column ``status`` (int8, never null)."""

    TO_READ = 0  # listed, and not read yet
    STORED = 1  # read; its stored image is in a block of the spool
    STORED_BEFORE = 2  # its stored image is in a shard of the previous version
    FILTERED = 3  # a rule of the configuration leaves it out; ``reason`` says which
    QUARANTINED = 4  # it cannot be used; ``reason`` says why


# Outcome that a row of INPUTS_SCHEMA has where the status settles it; the plan decides about stored files.
OUTCOME_OF_STATUS: Final = {Status.FILTERED: FILTERED, Status.QUARANTINED: QUARANTINED}

LISTING_SCHEMA = pa.schema(
    [
        ("uri", pa.string()),  # relative to the source, or <table>#row=<number>; sorted, unique
        ("size_bytes", pa.int64()),  # 0 if the file could not be looked at
        ("mtime_ns", pa.int64()),  # nanoseconds since 1970; 0 if not known
        ("label", pa.string()),  # name of the class; null if it has none
        ("split", pa.string()),  # null if the source gives none
        ("group", pa.string()),  # key of the images that must stay in one split; null if there is none
        ("status", pa.int8()),  # Status: TO_READ, FILTERED or QUARANTINED
        ("reason", pa.string()),  # null if the status is TO_READ
        ("message", pa.string()),  # the reason in a sentence; null if the status is TO_READ
    ]
)

# Further columns of a listing and of its references where images are members of containers; see FileRef.
# Listings of plain files do not have them, so these cost nothing there, and change no digest.
MEMBER_COLUMNS = (
    pa.field("container", pa.dictionary(pa.int32(), pa.string())),  # null for a row that is no member
    pa.field("position", pa.int64()),  # null for a row that is no member
)
MEMBER_LISTING_SCHEMA = pa.schema([*LISTING_SCHEMA, *MEMBER_COLUMNS])

# Further columns of a listing and of its references where images have masks, which are files or members.
MASK_COLUMNS = (
    pa.field("mask_uri", pa.string()),  # relative to the source; null for a row that is not read
    pa.field("mask_size_bytes", pa.int64()),
    pa.field("mask_mtime_ns", pa.int64()),
)
# Further columns where the masks are members of containers: see FileRef.
MASK_MEMBER_COLUMNS = (
    pa.field("mask_container", pa.dictionary(pa.int32(), pa.string())),
    pa.field("mask_position", pa.int64()),
)

# Further column where masks are drawn from shapes; ``mask_uri`` names the annotation, and both others are 0.
MASK_SHAPES = pa.field("mask_shapes", pa.binary())

# The rows of the listing whose status is TO_READ, without those that the previous version knows. With
# MEMBER_COLUMNS and MASK_COLUMNS if the listing has them: see reference_schema.
REFERENCE_SCHEMA = pa.schema(
    LISTING_SCHEMA.field(name) for name in ("uri", "size_bytes", "mtime_ns", "label", "split", "group")
)

FACTS_SCHEMA = pa.schema(
    [
        ("sha256", pa.binary(32)),  # of the file's bytes; null if they could not be read
        ("status", pa.int8()),  # Status: any but TO_READ
        ("stage", pa.string()),  # STAGES; null if the image is stored
        ("reason", pa.string()),  # null if the image is stored
        ("message", pa.string()),  # null if the image is stored
        ("offset_bytes", pa.int64()),  # of the stored image in its block or shard; null if none is stored
        ("group", pa.string()),  # key that the file itself gives; null if it gives none
        *IMAGE_COLUMNS,  # null if none is stored, and of STORED_BEFORE until reuse fills them in
    ]
)

# Place of a stored image: block and shard are both null exactly if none is stored.
_PLACE_COLUMNS = (
    pa.field("block", pa.int32()),  # number of the block in the spool; null unless STORED
    pa.field("shard", pa.int32()),  # number of the previous version's shard; null unless STORED_BEFORE
)

PLACED_FACTS_SCHEMA = pa.schema([*FACTS_SCHEMA, *_PLACE_COLUMNS])

IMAGE_NAMES: Final = tuple(field.name for field in IMAGE_COLUMNS)

# The columns of an index that say something of a record itself, not of its image or its place.
_RECORD_COLUMNS = tuple(
    field
    for field in INDEX_SCHEMA
    if field.name not in ("id", "sha256", "offset_bytes", "length_bytes", *IMAGE_NAMES)
)

PLAN_SCHEMA = pa.schema(
    [
        ("id", pa.string()),  # first 16 hexadecimal digits of the SHA-256
        ("sha256", pa.binary(32)),  # of the source file's bytes
        *_RECORD_COLUMNS,
        *_PLACE_COLUMNS,
        ("offset_bytes", pa.int64()),  # in the block or shard
        *IMAGE_COLUMNS,
    ]
)

# A plan as it is in the spool, in the order in which the records are stored.
SPOOLED_PLAN_SCHEMA = PLAN_SCHEMA.append(
    pa.field("length_bytes", pa.int64())  # to copy: of the image in a block, of the record in a shard
)

# The records of a version that the next one may take over, sorted by id.
PREVIOUS_RECORDS_SCHEMA = pa.schema(
    [
        pa.field("sha256", pa.binary(32)),  # of the source file's bytes
        pa.field("shard", pa.int32()),  # number in the manifest
        *(INDEX_SCHEMA.field(name) for name in ("offset_bytes", "length_bytes")),
        *_RECORD_COLUMNS,
        *IMAGE_COLUMNS,
    ]
)

# Stages in which a file can drop out, or be found to repeat another.
LIST, READ, DECODE, FILTER, PLAN = STAGES = ("list", "read", "decode", "filter", "plan")

_OUTCOMES = pa.array([OUTCOME_OF_STATUS.get(status) for status in Status], pa.string())


def outcomes_of(status: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the outcomes that statuses (int8) settle: string, null if the plan will decide."""
    return _OUTCOMES.take(status)


def reference_schema(listing: pa.Table | pa.RecordBatch) -> pa.Schema:
    """Return REFERENCE_SCHEMA, with the columns of members and masks that a listing has."""
    further = (*MEMBER_COLUMNS, *MASK_COLUMNS, *MASK_MEMBER_COLUMNS, MASK_SHAPES)
    return pa.schema([*REFERENCE_SCHEMA, *(field for field in further if field.name in listing.schema.names)])


def has_masks(listing: pa.Table | pa.RecordBatch) -> bool:
    """Tell whether the images of a listing, or of its references, have masks."""
    return MASK_COLUMNS[0].name in listing.schema.names


def file_refs(references: pa.Table | pa.RecordBatch) -> Iterator[FileRef]:
    """Return the images of a table that has uri, size_bytes and mtime_ns, in order.

    With their container or mask if the table has MEMBER_COLUMNS or MASK_COLUMNS.
    """
    nothing: list[None] = [None] * references.num_rows

    def columns(fields: Iterable[pa.Field]) -> list[list[Any]]:
        names = (field.name for field in fields)
        return [
            references[name].to_pylist() if name in references.schema.names else nothing for name in names
        ]

    masks: Iterable[FileRef | None] = nothing
    if has_masks(references):
        masks = map(
            FileRef, *columns((*MASK_COLUMNS, *MASK_MEMBER_COLUMNS)), nothing, *columns([MASK_SHAPES])
        )
    return map(FileRef, *columns([*LISTING_SCHEMA][:3]), *columns(MEMBER_COLUMNS), masks)
