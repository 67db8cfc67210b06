"""Images in the batches of CIFAR-10 and CIFAR-100 (pickles or binary), and of others in their form.

Each row of each batch is an input, ``data_batch_1#row=0000017``. The formats are described on
https://www.cs.toronto.edu/~kriz/cifar.html (downsampled ImageNet has the same pickles) and for STL-10 on
https://cs.stanford.edu/~acoates/stl10/. A row has its colours one after the other. The bytes that stand for
an image are a PNG file of its pixels, as those of kind arrays.

    pickles   pickles, which are not executed
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.class_names import parse_names, quoted
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kinds.arrays.reading import png_bytes, stored_png
from shardmill.beam_jobs.sources.kinds.cifar.pickles import Array, plain_pickle
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.beam_jobs.sources.rows.listing import Contents, list_contents, read_all, walk_files
from shardmill.beam_jobs.sources.rows.reading import RowReader
from shardmill.beam_jobs.sources.rows.row_files import FileRows, RowFile, RowFileBroken, choose_files
from shardmill.infra.errors import ConfigError
from shardmill.infra.storage.filesystem import Storage

_BATCH = re.compile(
    r"(.*_)?(data_batch(_\d+)?|test_batch|data|train|test)(\.bin)?|(train|test)_X\.bin", re.IGNORECASE
)
_META = {"batches.meta", "meta", "batches.meta.txt", "fine_label_names.txt", "class_names.txt"}
_NAMES = ("label_names", "fine_label_names")
_SIDE, _SIDE_OF_STL = 32, 96
_MOST_BYTES = 1 << 31  # longest pickle
_MOST_LABELS = 1 << 20  # bytes of a file of labels or names


@dataclass(frozen=True)
class _Batch:
    """The images of a file.

    Attributes:
        offset: place of the first pixel (bytes).
        stride: from an image to the next (bytes).
        labels: number of the class of each image.
        side: height and width (pixels).
        by_columns: the pixels come column by column.
    """

    offset: int
    stride: int
    labels: list[int]
    side: int
    by_columns: bool = False


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every row of the batches in a folder, with its label and split.

    Raises:
        NotFoundError: there is no such folder, or no batch in it.
    """
    files, warnings = walk_files(folder, config)
    chosen = choose_files(folder, files, _is_batch, "batch of CIFAR")
    there = {file.uri for file in files}
    others = {uri: "it names the classes" for uri in there if _name(uri) in _META}
    others |= {uri: "it has the labels of a batch" for uri in there if _name(uri).endswith("_y.bin")}

    def read(file: RowFile) -> FileRows:
        batch = _read_batch(file)
        side, names = batch.side, _names_beside(file, there)
        first = 1 if batch.by_columns else 0  # STL-10 counts from 1
        return FileRows(
            file,
            positions=np.arange(len(batch.labels), dtype=np.int64),
            sizes=np.full(len(batch.labels), png_bytes(side, side, 3), np.int64),
            labels=pa.array(map(str, batch.labels), pa.string()),
            names={number + first: name for number, name in names.items()},
            split="train" if "data_batch" in _name(file.uri) and "val" not in _name(file.uri) else None,
        )

    rows, broken = read_all(folder, chosen, read)
    return list_contents(folder, config, Contents(files, rows, broken, others, warnings))


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise the files of CIFAR by their names, beside one with the names of their classes."""
    named = {uri.rpartition("/")[0] for uri in glance.files if _name(uri) in _META}
    found = [uri for uri in glance.files if _is_batch(uri) and uri.rpartition("/")[0] in named]
    found = [uri for uri in found if "." not in _name(uri) or uri.endswith(".bin")]
    if not found or settings.labels not in (None, "class"):
        return None
    return Recognised(f"{quoted(found)} are batches as those of CIFAR", is_certain=True)


def open_reader(folder: SourceFolder, config: PrepareConfig, scratch: Storage | None) -> RowReader:
    """Open the reader of rows."""
    return RowReader(folder, partial(BatchImages))


class BatchImages:
    """The images of one open batch.

    Args:
        file: the batch.

    Raises:
        RowFileBroken: it is none.
    """

    def __init__(self, file: RowFile) -> None:
        self._batch = _read_batch(file)
        self._ranges = file.ranges()

    def read(self, file: FileRef, position: int) -> bytes:
        """Return the image of a row, as a PNG file.

        Raises:
            RowFileBroken: the file has changed or ends early.
        """
        side, batch = self._batch.side, self._batch
        data = self._ranges.read_at(3 * side * side, batch.offset + position * batch.stride)
        if len(data) < 3 * side * side:
            raise RowFileBroken(f"it ends in or before row {position:,}")
        planes = np.frombuffer(data, np.uint8).reshape(3, side, side)
        return stored_png(
            np.ascontiguousarray(planes.transpose((2, 1, 0) if batch.by_columns else (1, 2, 0)))
        )

    def close(self) -> None:
        """Close the file."""
        self._ranges.close()


def _is_batch(uri: str) -> bool:
    return _BATCH.fullmatch(_name(uri)) is not None


def _name(uri: str) -> str:
    return uri.rpartition("/")[2]


def _beside(file: RowFile, name: str, most: int = _MOST_LABELS) -> bytes:
    """Return the content of a file in the same folder; nothing if there is none."""
    folder = file.uri.rpartition("/")[0]
    try:
        with file.folder.open_container(f"{folder}/{name}".lstrip("/")) as stream:
            return stream.read_at(most, 0)
    except SourceFault:
        return b""


def _read_batch(file: RowFile) -> _Batch:
    """Read where the images of a file are, and their labels.

    Raises:
        RowFileBroken: it is no batch.
    """
    name = _name(file.uri)
    with file.open() as stream:
        if not name.endswith(".bin"):
            return _of_pickle(stream.read_at(_MOST_BYTES, 0))
        if name.endswith("_X.bin"):
            labels = list(_beside(file, name.replace("_X.", "_y.")))
            return _checked(_Batch(0, 3 * _SIDE_OF_STL**2, labels, _SIDE_OF_STL, True), stream.size_bytes)
        num_labels = 2 if _beside(file, "fine_label_names.txt", 1) else 1  # the coarse one comes first
        stride = 3 * _SIDE**2 + num_labels
        data = np.frombuffer(stream.read_at(stream.size_bytes // stride * stride, 0), np.uint8)
        labels = data.reshape(-1, stride)[:, num_labels - 1].tolist()
        return _checked(_Batch(num_labels, stride, labels, _SIDE), stream.size_bytes)


def _checked(batch: _Batch, size_bytes: int) -> _Batch:
    if not batch.labels or len(batch.labels) * batch.stride != size_bytes:
        raise RowFileBroken(
            f"it has {size_bytes:,} bytes, and {len(batch.labels):,} images take "
            f"{len(batch.labels) * batch.stride:,}"
        )
    return batch


def _of_pickle(data: bytes) -> _Batch:
    document = plain_pickle(data)
    labels = next((document[key] for key in ("fine_labels", "labels") if key in document), None)
    labels = labels.values().tolist() if isinstance(labels, Array) else labels
    pixels = document.get("data")
    if not isinstance(pixels, Array) or not isinstance(labels, list):
        raise RowFileBroken(f"it has no data and labels, but {quoted(sorted(map(str, document)))}")
    count, length = pixels.shape if len(pixels.shape) == 2 else (0, 0)
    side = math.isqrt(length // 3)
    if count != len(labels) or pixels.kind not in ("u1", "|u1") or pixels.is_fortran or 3 * side**2 != length:
        raise RowFileBroken(f"its data are {pixels.kind} {list(pixels.shape)}, with {len(labels):,} labels")
    offset = data.find(pixels.data)
    if not all(type(label) is int for label in labels) or len(pixels.data) != count * length or offset < 0:
        raise RowFileBroken("its images are packed in a way that single ones cannot be read")
    return _Batch(offset, length, labels, side)


def _names_beside(file: RowFile, there: set[str]) -> dict[int, str]:
    """Return number, from 0, and name of the classes; none if no file gives them.

    Raises:
        ConfigError: a file of names lacks one, or has one twice.
    """
    folder = file.uri.rpartition("/")[0]
    for name in sorted(_META):
        if f"{folder}/{name}".lstrip("/") not in there:
            continue
        data = _beside(file, name)
        if name.endswith(".txt"):
            try:
                return parse_names(data.decode("utf-8-sig"))
            except ValueError as error:
                raise ConfigError(
                    f"{name} does not name the classes: {error}", "write a name a line, or remove the file"
                ) from error
        document = plain_pickle(data)
        names: Any = next((document[key] for key in _NAMES if key in document), [])
        return dict(enumerate(map(str, names))) if isinstance(names, list) else {}
    return {}
