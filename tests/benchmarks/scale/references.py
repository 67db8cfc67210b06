"""Synthetic references: listing and facts of photographs that do not exist.

A row depends on its number and on the number of all references alone, so that any range of rows can be made
by itself. In 1,000 classes whose sizes fall off as 1 / rank:

* of 100 files one repeats the file before it; of 10,000 one repeats a file far away, often of another class
* 4 % of the files are in groups of two by key, which the repeats join to larger ones
* of 1,000 files one is broken, and one is given to test; of 2,000 one is filtered
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.reasons import IGNORED
from shardmill.beam_jobs.schemas import DECODE, FACTS_SCHEMA, LISTING_SCHEMA, Status
from shardmill.infra.format.contract import LOOK_BYTES, LOOK_SIDE, ROOT_UNIT
from shardmill.infra.splitmix import splitmix64

Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

CLASSES = 1000
REPEATS = 100  # of so many files one is a repeat
FAR = 10_000  # of so many files one repeats a file far away
KEYED = 50  # of so many files two share a key


@dataclass(frozen=True)
class References:
    """The references of a dataset.

    Attributes:
        count: number of files, a multiple of 10,000.
        lean: leave out the look, the mean and the deviation of each image, half of the bytes of its facts.
    """

    count: int
    lean: bool = False

    def listing(self, start: int, stop: int) -> pa.Table:
        """Return the rows [start, stop) of the listing: LISTING_SCHEMA."""
        at = np.arange(start, stop)
        filtered, keyed = is_filtered(at), is_keyed(at)
        names = pa.array([f"class_{code:04d}" for code in range(CLASSES)])
        label = names.take(pa.array(self.labels(at)))
        keys = pc.binary_join_element_wise("p", pa.array(at // KEYED).cast(pa.string()), "")
        columns: dict[str, Any] = {
            "uri": pc.binary_join_element_wise(label, "/photographs_", _padded(at), ".jpg", ""),
            "size_bytes": 20_000 + _number(at, 1) % 180_000,
            "mtime_ns": (1 << 60) + (_number(at, 2) >> 4),
            "label": label,
            "split": _where(is_given(at), "test"),
            "group": pc.if_else(pa.array(keyed), keys, pa.scalar(None, pa.string())),
            "status": np.where(filtered, Status.FILTERED, Status.TO_READ).astype(np.int8),
            "reason": _where(filtered, IGNORED),
            "message": _where(filtered, "matches a pattern"),
        }
        return _table(columns, len(at), LISTING_SCHEMA)

    def facts(self, start: int, stop: int) -> pa.Table:
        """Return the facts of the files that are read of rows [start, stop): FACTS_SCHEMA."""
        at = np.arange(start, stop)
        at = at[~is_filtered(at)]
        broken, count = is_broken(at), len(at)
        parts = [splitmix64((self.contents(at) * 4 + part).astype(np.uint64)) for part in range(4)]
        digests = np.stack(parts, axis=1).view(np.uint8)
        columns: dict[str, Any] = {
            "sha256": pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(32), count, [None, pa.py_buffer(np.ascontiguousarray(digests))]
            ),
            "status": np.where(broken, Status.QUARANTINED, Status.STORED).astype(np.int8),
            "stage": _where(broken, DECODE),
            "reason": _where(broken, "corrupt"),
            "message": _where(broken, "the file ends within the image"),
            "offset_bytes": at % 128 * 28_000,
            "stored_bytes": 20_000 + _number(at, 3) % 16_000,
            "height": 256 + _number(at, 4) % 144,
            "width": 256 + _number(at, 5) % 144,
            "stored_from": pa.repeat("planes", count),
            "source_format": pa.repeat("jpeg", count),
            "source_color": pa.repeat("YCbCr 4:2:0", count),
            "source_height": 256 + _number(at, 6) % 4000,
            "source_width": 256 + _number(at, 7) % 4000,
            "orientation": np.ones(count, np.int8),
            "had_alpha": np.zeros(count, np.bool_),
            "salvaged": np.zeros(count, np.bool_),
            "perceptual_hash": splitmix64(at.astype(np.uint64)),
        }
        if not self.lean:
            columns |= _measures(at)
        facts = _table(columns, count, FACTS_SCHEMA)
        return _without_images(facts, broken)

    def labels(self, at: Int64) -> Int64:
        """Return the class of each file; the classes follow each other, as the URIs sort."""
        shares = np.cumsum(1 / np.arange(1, CLASSES + 1))
        ends = np.rint(shares / shares[-1] * self.count)
        return np.searchsorted(ends, at, side="right")

    def contents(self, at: Int64) -> Int64:
        """Return the number of the file that first had the content of each file."""
        near = np.where(is_repeat(at), at - 1, at)
        far = at // REPEATS * 61 % (self.count // REPEATS) * REPEATS + 6
        return np.where(at % FAR == 7, far, near)


def is_repeat(at: Int64) -> Mask:
    """Return which files repeat another."""
    return np.asarray(at % REPEATS == 7)


def is_keyed(at: Int64) -> Mask:
    """Return which files share a key, number ``at // KEYED``, with another."""
    return np.asarray((at % KEYED == 7) | (at % KEYED == 17))


def is_given(at: Int64) -> Mask:
    """Return which files the source gives to test."""
    return np.asarray(at % 1000 == 500)


def is_broken(at: Int64) -> Mask:
    """Return which files are broken."""
    return np.asarray(at % 1000 == 333)


def is_filtered(at: Int64) -> Mask:
    """Return which files are filtered by their name."""
    return np.asarray(at % 2000 == 1999)


def _number(at: Int64, purpose: int) -> Int64:
    """Return numbers that look random, from 0 to 2**63 - 1: int64 [N]."""
    mixed = splitmix64((at * 64 + purpose).astype(np.uint64))
    return np.asarray((mixed >> np.uint64(1)).astype(np.int64))


def _padded(at: Int64) -> pa.Array:
    return pc.utf8_lpad(pa.array(at).cast(pa.string()), 9, "0")


def _where(mask: Mask, text: str) -> pa.Array:
    return pc.if_else(pa.array(mask), pa.scalar(text), pa.scalar(None, pa.string()))


def _measures(at: Int64) -> dict[str, pa.Array]:
    """Return looks, of which one in a hundred is nearly that of the file before it, means and deviations."""
    count = len(at)
    blocks = np.unique(at // FAR)
    made = [_measured(int(block)) for block in blocks]
    rows = at - (blocks[0] * FAR if count else 0)
    looks, triples = (np.concatenate([one[part] for one in made])[rows] for part in range(2))
    offsets = np.arange(count + 1, dtype=np.int32)
    look = [None, pa.py_buffer(offsets * LOOK_BYTES), pa.py_buffer(looks)]
    return {
        "look": pa.BinaryArray.from_buffers(pa.binary(), count, look),
        "pixel_mean": pa.ListArray.from_arrays(offsets * 3, triples[:, :3].ravel()),
        "pixel_std": pa.ListArray.from_arrays(offsets * 3, triples[:, 3:].ravel()),
    }


def _measured(block: int) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Return look, and mean and deviation, of the files of a block: int8 [FAR, 196], float32 [FAR, 6]."""
    rng = np.random.default_rng(block)
    looks = _looks(FAR, rng)
    looks[13::100] = looks[12::100]
    looks[13::100, -3:] += 1
    return looks, rng.random((FAR, 6), np.float32) * 255


def _looks(count: int, rng: np.random.Generator) -> npt.NDArray[np.int8]:
    """Return looks of unrelated images: int8 [count, 196]. Low frequencies are large, as in photographs."""
    frequencies = np.arange(LOOK_SIDE)
    sizes = 400 / (1 + np.hypot(frequencies[:, np.newaxis], frequencies).ravel())
    coefficients = rng.standard_normal((count, LOOK_BYTES), np.float32) * sizes.astype(np.float32)
    stored = np.clip(np.rint(ROOT_UNIT * np.sqrt(np.abs(coefficients))), 0, 127) * np.sign(coefficients)
    stored[:, 0] = 0
    return np.asarray(stored.astype(np.int8))


def _without_images(facts: pa.Table, broken: Mask) -> pa.Table:
    """Return facts without those of images that were not stored."""
    places = pa.array(np.arange(len(broken)), mask=broken)
    names = FACTS_SCHEMA.names[FACTS_SCHEMA.names.index("offset_bytes") :]
    images = facts.select(names).take(places)
    return pa.table([*facts.drop_columns(names).columns, *images.columns], schema=FACTS_SCHEMA)


def _table(columns: dict[str, Any], count: int, schema: pa.Schema) -> pa.Table:
    arrays = [
        pa.array(columns[field.name]).cast(field.type)
        if field.name in columns
        else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.table(arrays, schema=schema)
