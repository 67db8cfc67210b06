"""The labels of arrays, and their images as PNG files, row by row."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.files.container import Ranges
from shardmill.beam_jobs.sources.kinds.arrays.found import FoundArray, find_arrays, read_values, unpacked
from shardmill.beam_jobs.sources.kinds.arrays.roles import LabelledImages, check_images, where
from shardmill.beam_jobs.sources.kinds.table.columns import trimmed
from shardmill.beam_jobs.sources.rows.listing import row_of
from shardmill.beam_jobs.sources.rows.row_files import FileRows, RowFile, RowFileBroken
from shardmill.beam_jobs.sources.rows.unpacked import keep_unpacked, open_unpacked
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.known_features import LabelKind
from shardmill.infra.storage.filesystem import Storage

_MAX_LOST_ROWS = 1_000_000  # most rows of lost images of a file; a single row stands for more
_FLOATS_WHOLE = 2.0**63  # floats below are whole numbers of 64 bits
_MAX_INT64 = (1 << 63) - 1


def list_rows(found: LabelledImages, kind: LabelKind = "class") -> FileRows:
    """Read the labels of images, their splits and groups, and further features.

    Args:
        found: the arrays.
        kind: kind of the labels.

    Raises:
        RowFileBroken: a file is damaged. ConfigError: an array holds neither numbers nor texts.
    """
    images = found.images
    count, damage = _listed_rows(images)
    texts = {
        name: _texts(array)
        for name, array in (
            ("label", found.labels if kind == "class" else None),
            ("split", found.splits),
            ("group", found.groups),
        )
        if array is not None
    }
    texts = {name: values.slice(0, count) for name, values in texts.items()}
    values = _values_of_labels(found.labels, kind)
    return FileRows(
        images.file,
        positions=np.arange(count, dtype=np.int64),
        sizes=np.full(count, min(png_bytes(*_pixel_shape(images)), _MAX_INT64), np.int64),
        labels=texts.get("label", pa.nulls(count, pa.string())),
        splits=texts.get("split"),
        groups=texts.get("group"),
        damage=damage,
        unit="row" if images.member is None else images.name,
        split=found.split,
        label_values=None if values is None else values.slice(0, count),
        label_name="" if found.labels is None else found.labels.name,
        columns={name: _values(array).slice(0, count) for name, array in found.columns.items()},
    )


def _listed_rows(images: FoundArray) -> tuple[int, str | None]:
    """Return the number of rows to list, and a message about images that are left out; None: none are.

    A file may end before the number of images that its header gives. The missing images are listed too, and
    each becomes a broken row; if more than ``_MAX_LOST_ROWS`` are missing, only the present ones are listed.
    """
    count, there = images.shape[0], images.most_bytes // images.row_bytes
    if count - there <= _MAX_LOST_ROWS:
        return count, None
    return there, f"its header gives {count:,} images, and there are bytes for {there:,}"


def _values_of_labels(labels: FoundArray | None, kind: LabelKind) -> pa.Array | None:
    """Return the numbers of kind targets, or for kind multi the numbers of the columns that are 1.

    Raises:
        RowFileBroken: the file is damaged. ConfigError: the values are neither.
    """
    if labels is None or kind in ("class", "none"):
        return None
    if kind == "targets":
        if labels.dtype.kind not in "iufb":
            raise ConfigError(f"the array {where(labels)} holds {labels.dtype}, not numbers", "store numbers")
        return _values(labels)
    flags = read_values(labels)
    if flags.ndim != 2 or flags.dtype.kind not in "iufb" or not np.isin(flags, (0, 1)).all():
        raise ConfigError(
            f"the array {where(labels)} {list(labels.shape)} {labels.dtype} does not say by 0 and 1 which of "
            "several labels an image has",
            "store an array [N, C] of 0 and 1, with a column for each label; or say "
            "--set source.labels=class or targets",
        )
    rows, columns = np.nonzero(flags)
    lengths = np.bincount(rows, minlength=flags.shape[0])
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(columns, pa.int64()))


def _values(array: FoundArray) -> pa.Array:
    """Return the values of an array, or of [N, k] lists of k values.

    Raises:
        RowFileBroken: the file is damaged. ConfigError: the values are neither numbers nor texts.
    """
    values = read_values(array)
    kind = values.dtype.kind
    if kind in "US":
        flat = _texts(array)
    elif kind in "iufb":
        native = values.astype(values.dtype.newbyteorder("=")).reshape(-1)
        flat = pa.array(native.astype(np.float32) if native.dtype == np.float16 else native)
    else:
        raise ConfigError(f"the array {where(array)} holds {array.dtype}, neither numbers nor texts")
    if values.ndim < 2 or values.shape[1] == 1:
        return flat
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _texts(array: FoundArray) -> pa.Array:
    """Return the values of an array as texts; empty ones are null.

    Raises:
        RowFileBroken: the file is damaged. ConfigError: the values are neither numbers nor texts.
    """
    values = read_values(array).reshape(-1)
    kind = values.dtype.kind
    if kind == "f" and bool(np.all((values == np.floor(values)) & (np.abs(values) < _FLOATS_WHOLE))):
        values, kind = values.astype(np.int64), "i"
    if kind in "iufb":
        texts = pa.array(values.astype(values.dtype.newbyteorder("="))).cast(pa.string())
    elif kind in "US":
        try:
            texts = pa.array([_text(value) for value in values.tolist()], pa.string())
        except UnicodeDecodeError as error:
            raise ConfigError(f"the texts in {where(array)} are not UTF-8: {error}") from error
    else:
        raise ConfigError(
            f"the array {where(array)} holds {array.dtype}, neither numbers nor texts",
            "store numbers, or texts without Python objects",
        )
    return trimmed(texts)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else value


def _pixel_shape(array: FoundArray) -> tuple[int, int, int]:
    """Return height, width and channels of the images."""
    _, height, width, *channels = array.shape
    return height, width, channels[0] if channels else 1


class ArrayImages:
    """The images of the arrays in one open file.

    Args:
        file: the file.
        scratch: folder of the run, with unpacked copies; None outside of a run.

    Raises:
        RowFileBroken: it cannot be read.
    """

    def __init__(self, file: RowFile, scratch: Storage | None) -> None:
        self._file = file
        self._scratch = scratch
        self._arrays = {array.name: array for array in find_arrays(file)}
        self._ranges: dict[str, Ranges] = {}  # part of the file that they unpack ("": all of it) -> reader

    def read(self, file: FileRef, position: int) -> bytes:
        """Return the image of a row, as a PNG file.

        Raises:
            RowFileBroken: the file is damaged there, or is another than the one that was listed.
        """
        array = self._array(file)
        data = self._open(array).read_at(array.row_bytes, array.offset + position * array.row_bytes)
        if len(data) < array.row_bytes:
            raise RowFileBroken(f"it ends in or before row {position:,}")
        pixels: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8)
        height, width, channels = _pixel_shape(array)
        if array.is_by_columns:
            pixels = pixels.reshape(channels, width, height).transpose(2, 1, 0)
        return stored_png(pixels.reshape(height, width, channels))

    def close(self) -> None:
        """Close the file."""
        for ranges in self._ranges.values():
            ranges.close()

    def _array(self, file: FileRef) -> FoundArray:
        row = row_of(file.uri)
        found = self._arrays.get(row[1]) if row else None
        if found is None and len(self._arrays) == 1:
            (found,) = self._arrays.values()
        if found is None:
            raise RowFileBroken(f"it does not hold {file.uri}")
        check_images(found)
        return found

    def _open(self, array: FoundArray) -> Ranges:
        part = "" if array.packing == "none" else _part(array)
        if part not in self._ranges:
            self._ranges[part] = (
                self._file.ranges()
                if array.packing == "none"
                else open_unpacked(self._file, part, partial(unpacked, array), self._scratch)
            )
        return self._ranges[part]


def keep_unpacked_arrays(file: RowFile, units: Collection[str], scratch: Storage) -> None:
    """Unpack the arrays of images in a file that are compressed.

    Args:
        file: the file.
        units: names of the arrays, as the URIs of rows call them.
        scratch: folder of the run.
    """
    for array in find_arrays(file):
        if array.packing != "none" and (array.member is None or array.name in units):
            keep_unpacked(file, _part(array), partial(unpacked, array), scratch)


def _part(array: FoundArray) -> str:
    return array.member or "all"


_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOR_TYPES = {1: 0, 3: 2, 4: 6}  # channels -> grey, RGB, RGB with alpha
_BLOCK_BYTES = 0xFFFF  # the longest stored block
_ZLIB_HEADER = b"\x78\x01"


def stored_png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Encode pixels as a PNG file without compression; the same pixels always give the same bytes.

    Chunks IHDR, one IDAT and IEND; filter 0 for each line; stored blocks of 65,535 bytes.

    Args:
        pixels: uint8 [H, W, C], C = 1 (grey), 3 (RGB) or 4 (RGB with alpha).
    """
    height, width, channels = pixels.shape
    lines = np.zeros((height, 1 + width * channels), np.uint8)
    lines[:, 1:] = pixels.reshape(height, width * channels)
    raw = lines.tobytes()
    parts = [_ZLIB_HEADER]
    for start in range(0, len(raw), _BLOCK_BYTES):
        block = raw[start : start + _BLOCK_BYTES]
        is_last = start + _BLOCK_BYTES >= len(raw)
        parts += [struct.pack("<BHH", is_last, len(block), len(block) ^ 0xFFFF), block]
    parts.append(struct.pack(">I", zlib.adler32(raw)))
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    return b"".join(
        [_SIGNATURE, _chunk(b"IHDR", header), _chunk(b"IDAT", b"".join(parts)), _chunk(b"IEND", b"")]
    )


def png_bytes(height: int, width: int, channels: int) -> int:
    """Return the length of the file that ``stored_png`` makes of such pixels (bytes)."""
    raw = height * (1 + width * channels)
    num_blocks = -(-raw // _BLOCK_BYTES)
    return len(_SIGNATURE) + (12 + 13) + (12 + len(_ZLIB_HEADER) + 5 * num_blocks + raw + 4) + 12


def _chunk(name: bytes, data: bytes) -> bytes:
    crc = zlib.crc32(data, zlib.crc32(name))
    return b"".join((struct.pack(">I", len(data)), name, data, struct.pack(">I", crc)))
