"""The data flow of ``prepare``: every Arrow table between two stages, and every status, stage and reason.

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

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal

import pyarrow as pa

from shardmill.infra.format.contract import FILTERED, IMAGE_COLUMNS, INDEX_SCHEMA, QUARANTINED


@dataclass(frozen=True, slots=True)
class FileRef:
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
    """

    uri: str
    size_bytes: int
    mtime_ns: int
    container: str | None = None
    position: int | None = None
    mask: FileRef | None = None


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

# Reasons of FILTERED files.
IGNORED: Final = "ignored"  # list: a pattern of filter.ignore matches it
OTHER_CLASS: Final = "class"  # list: filter.classes does not name its class
SPECIAL_FILE: Final = "special_file"  # list: a pipe, a socket or a device
SOURCE_TABLE: Final = "table"  # list: it is the table that names the images
NOT_IN_TABLE: Final = "not_in_table"  # list: no row of the table names it
DROPPED_LABEL: Final = "dropped_label"  # list: source.columns.drop_labels names its label
LABEL_EDIT: Final = "label_edit"  # list: a row of source.label_edits drops it
EMPTY_ARCHIVE: Final = "empty_archive"  # list: an archive without a file in it
SIDECAR: Final = "sidecar"  # list: it says something of the image of the same name
REPLACED_MEMBER: Final = "replaced_member"  # list: a later member of the archive has the same name
REPEATED_ROW: Final = "repeated_row"  # list: a row that says the same as an earlier one
OPTED_OUT: Final = "opted_out"  # list: the server reserves the image
ROW_FILE: Final = "row_file"  # list: its rows are images, or say something of them
OTHER_FILE: Final = "other_file"  # list: not of the kind of files that are read
MASK_FILE: Final = "mask"  # list: the mask of an image
UNMASKED: Final = "unmasked"  # list or read: it has no mask, and source.masks.unmasked leaves it out
TOO_SMALL: Final = "too_small"  # filter
ASPECT: Final = "aspect"  # filter
AI_MADE: Final = "ai_made"  # filter: it declares that a generative model made it
PURGED: Final = "purged"  # filter: its content was purged from the dataset
LEAK: Final = "leak"  # plan: its group is in another split too
FILTER_REASONS: Final = frozenset({
    IGNORED, OTHER_CLASS, SPECIAL_FILE, SOURCE_TABLE, NOT_IN_TABLE, DROPPED_LABEL, LABEL_EDIT, REPEATED_ROW,
    OPTED_OUT, ROW_FILE, OTHER_FILE, MASK_FILE, UNMASKED, EMPTY_ARCHIVE, SIDECAR, REPLACED_MEMBER,
    TOO_SMALL, ASPECT, AI_MADE, PURGED, LEAK,
})  # fmt: skip

# Reasons of QUARANTINED files, by the stage that finds them.
NO_CLASS: Final = "no_class"
PATH_TOO_LONG: Final = "path_too_long"
UNLISTED_FOLDER: Final = "unlisted_folder"
BROKEN_LINK: Final = "broken_link"
UNREADABLE: Final = "unreadable"  # found by listing or by reading
# Of containers and their rows.
BROKEN_CONTAINER: Final = "broken_container"  # found by listing or by reading
NO_IMAGE: Final = "no_image"
# Of rows of a table, and of the files that they name.
BROKEN_ROW: Final = "broken_row"
BAD_PATH: Final = "bad_path"
MISSING_FILE: Final = "missing_file"
SEVERAL_FILES: Final = "several_files"
NO_LABEL: Final = "no_label"
UNKNOWN_SPLIT: Final = "unknown_split"
CONTRADICTION: Final = "contradicting_rows"
ROW_REASONS: Final = (
    BROKEN_ROW, BAD_PATH, MISSING_FILE, SEVERAL_FILES, NO_LABEL, UNKNOWN_SPLIT, CONTRADICTION,
)  # fmt: skip
# Of rows of kind urls: the address gave no image.
NOT_FOUND: Final = "not_found"
ACCESS_DENIED: Final = "access_denied"
SERVER_ERROR: Final = "server_error"
TOO_MANY_REQUESTS: Final = "too_many_requests"
UNREACHABLE: Final = "unreachable"
TIMED_OUT: Final = "timed_out"
BROKEN_OFF: Final = "broken_off"
BAD_REDIRECT: Final = "bad_redirect"
PRIVATE_HOST: Final = "private_host"
NOT_AN_IMAGE: Final = "not_an_image"
FETCH_REASONS: Final = (
    NOT_FOUND, ACCESS_DENIED, SERVER_ERROR, TOO_MANY_REQUESTS, UNREACHABLE, TIMED_OUT, BROKEN_OFF,
    BAD_REDIRECT, PRIVATE_HOST, NOT_AN_IMAGE,
)  # fmt: skip
# Of archives and their members.
BAD_NAME: Final = "bad_name"
ARCHIVED_LINK: Final = "archived_link"
ENCRYPTED: Final = "encrypted"
UNSUPPORTED_MEMBER: Final = "unsupported_member"
DAMAGED_MEMBER: Final = "damaged_member"  # found by listing or by reading
ARCHIVE_REASONS: Final = (BAD_NAME, ARCHIVED_LINK, ENCRYPTED, UNSUPPORTED_MEMBER, DAMAGED_MEMBER)
# Of images without a usable mask, and of masks without an image.
NO_MASK: Final = "no_mask"  # found by listing or by reading
MISSING_MASK: Final = "missing_mask"
SEVERAL_MASKS: Final = "several_masks"
MASK_WITHOUT_IMAGE: Final = "mask_without_image"
MASK_LIST_REASONS: Final = (NO_MASK, MISSING_MASK, SEVERAL_MASKS, MASK_WITHOUT_IMAGE)
LIST_REASONS: Final = (
    NO_CLASS, PATH_TOO_LONG, UNLISTED_FOLDER, BROKEN_LINK, UNREADABLE, BROKEN_CONTAINER, *ROW_REASONS,
    *FETCH_REASONS, *ARCHIVE_REASONS, *MASK_LIST_REASONS,
)  # fmt: skip
VANISHED: Final = "vanished"
CHANGED: Final = "changed"
TOO_LARGE: Final = "too_large"
READ_REASONS: Final = (
    VANISHED, CHANGED, TOO_LARGE, UNREADABLE, BROKEN_CONTAINER, NO_IMAGE, DAMAGED_MEMBER, NO_MASK,
)  # fmt: skip
# Raised by shardmill.infra.codecs, apart from the last.
UNPROCESSABLE: Final = "unprocessable"  # a library failed in a way that no rule foresees
DECODE_REASONS: Final = (
    "empty", "unknown_format", "unsupported", "truncated", "corrupt", "too_many_pixels", "bomb", "too_long",
    UNPROCESSABLE,
)  # fmt: skip
# Of the masks of images that are fine; the last two are raised by shardmill.infra.codecs.
BROKEN_MASK: Final = "broken_mask"
OTHER_MASK_SIZE: Final = "other_mask_size"
LOSSY_MASK: Final = "lossy_mask"
UNKNOWN_MASK_VALUE: Final = "unknown_mask_value"
MASK_REASONS: Final = (BROKEN_MASK, OTHER_MASK_SIZE, LOSSY_MASK, UNKNOWN_MASK_VALUE)
# Verdicts on files that a process of their own did not survive.
CRASHED: Final = "decoder_crashed"
HUNG: Final = "decoder_hung"
OUT_OF_MEMORY: Final = "decoder_out_of_memory"
VerdictReason = Literal["decoder_crashed", "decoder_hung", "decoder_out_of_memory"]
VERDICT_REASONS: tuple[VerdictReason, ...] = (CRASHED, HUNG, OUT_OF_MEMORY)

# Reasons that may be gone at the next run although the listing has not changed.
PASSING_REASONS: Final = (UNREADABLE, VANISHED, CHANGED)

# Found by planning.
OTHER_SIZE: Final = "other_size"

QUARANTINE_REASONS: Final = frozenset(
    (*LIST_REASONS, *READ_REASONS, *DECODE_REASONS, *MASK_REASONS, *VERDICT_REASONS, OTHER_SIZE)
)

# Reasons of DUPLICATES; the second where the source gives the file another split than the record it repeats.
SAME_BYTES: Final = "same_bytes"
SAME_BYTES_ACROSS_SPLITS: Final = "same_bytes_across_splits"

_OUTCOMES = pa.array([OUTCOME_OF_STATUS.get(status) for status in Status], pa.string())


def outcomes_of(status: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the outcomes that statuses (int8) settle: string, null if the plan will decide."""
    return _OUTCOMES.take(status)


def reference_schema(listing: pa.Table | pa.RecordBatch) -> pa.Schema:
    """Return REFERENCE_SCHEMA, with the columns of members and masks that a listing has."""
    further = (*MEMBER_COLUMNS, *MASK_COLUMNS, *MASK_MEMBER_COLUMNS)
    return pa.schema([*REFERENCE_SCHEMA, *(field for field in further if field.name in listing.schema.names)])


def has_masks(listing: pa.Table | pa.RecordBatch) -> bool:
    """Tell whether the images of a listing, or of its references, have masks."""
    return MASK_COLUMNS[0].name in listing.schema.names


def file_refs(references: pa.Table | pa.RecordBatch) -> Iterator[FileRef]:
    """Return the images of a table that has uri, size_bytes and mtime_ns, in order.

    With their container or mask if the table has MEMBER_COLUMNS or MASK_COLUMNS.
    """
    names = ["uri", "size_bytes", "mtime_ns"]
    if "container" in references.schema.names:
        names += ["container", "position"]
    columns = {name: references[name].to_pylist() for name in names}
    if not has_masks(references):
        return map(FileRef, *columns.values())
    no_container: list[None] = [None] * references.num_rows
    of_mask = [field.name for field in (*MASK_COLUMNS, *MASK_MEMBER_COLUMNS)]
    masks = map(
        FileRef, *(references[name].to_pylist() for name in of_mask if name in references.schema.names)
    )
    places = (columns.get(name, no_container) for name in ("container", "position"))
    return map(FileRef, *(columns[name] for name in names[:3]), *places, masks)
