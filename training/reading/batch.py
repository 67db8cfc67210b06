"""A batch as numpy arrays, and the memory of its images, which is used again."""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra.preparation import SampleType
from shardmill.training.reading.decode import Pixels
from shardmill.training.reading.records.annotations import Objects
from shardmill.training.reading.records.columns import Padded

# TensorFlow uses an array without copying it if it begins at a multiple of this.
_ALIGNMENT_BYTES = 64
_KEPT = 4


@dataclass(frozen=True, slots=True)
class Batch:
    """The examples of one step, or of one rank's slice of it. Its length is their number.

    ``images, labels = batch`` unpacks it; with padding or class weights ``images, labels, weights = batch``,
    as elements of ``.tf``.

    Attributes:
        images: [b, S, S, C] of the type of the data set, uint8, uint16 or float32; whole images [b, largest
            height, largest width, C], with zeros below and to the right of smaller ones.
        sizes: int32 [b, 2], height and width of each image within ``images`` (pixels).
        labels: int32 [b], or float32 [b, C] or [b, T] (``SplitTable.labels_of``); masks uint8 [b, S, S], or
            int32 with more than 255 classes, as large as ``images``.
        weights: float32 [b] (``StepPlan.weights``): 0 for padding.
        ordinals, positions: int64 [b], the records, and their positions in the epoch.
        epoch, step: the step of the run.
        features: the features that were asked for, by name (``FeatureColumns.rows``).
        objects: the objects in the images, if they were asked for.
        is_weighted: it unpacks with its weights.
    """

    images: Pixels
    sizes: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32] | npt.NDArray[np.float32] | npt.NDArray[np.uint8]
    weights: npt.NDArray[np.float32]
    ordinals: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    epoch: int
    step: int
    features: dict[str, npt.NDArray[Any] | Padded] = field(default_factory=dict)
    objects: Objects | None = None
    is_weighted: bool = False

    def __len__(self) -> int:
        return len(self.ordinals)

    def __iter__(self) -> Iterator[Any]:
        yield from (self.images, self.labels, *([self.weights] if self.is_weighted else []))

    def __repr__(self) -> str:
        return described_batch(self.epoch, self.step, self.images, self.labels, self.features)


def described_batch(epoch: int, step: int, images: Any, labels: Any, features: Mapping[str, Any]) -> str:
    """Return a batch of arrays or tensors as one line."""
    parts = ", ".join(
        f"{name} {str(array.dtype).removeprefix('torch.')} {[*array.shape]}"
        for name, array in (("images", images), ("labels", labels))
    )
    beside = f", features {', '.join(features)}" if features else ""
    return f"<batch of epoch {epoch}, step {step}: {parts}{beside}>"


class BufferPool:
    """Hands out arrays and takes their memory back when nothing refers to them. Safe for many threads.

    Fresh pages would cost 15 to 40 µs an image.
    """

    def __init__(self) -> None:
        # No lock: a finaliser may run in the middle of `take`. The operations of a deque are atomic.
        self._free: deque[npt.NDArray[np.uint8]] = deque(maxlen=_KEPT)

    def take(self, shape: tuple[int, ...], dtype: SampleType = "uint8") -> Pixels:
        """Return an array with arbitrary content, for the caller alone."""
        num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        memory = self._fitting(num_bytes + _ALIGNMENT_BYTES)
        begin = -memory.ctypes.data % _ALIGNMENT_BYTES
        # Through the buffer protocol, so that views of views keep this array alive and not only the memory.
        array = np.frombuffer(memory.data[begin : begin + num_bytes], np.uint8)
        weakref.finalize(array, self._free.append, memory).atexit = False
        return array.view(dtype).reshape(shape)

    def _fitting(self, num_bytes: int) -> npt.NDArray[np.uint8]:
        try:
            memory = self._free.pop()
        except IndexError:
            return np.empty(num_bytes, np.uint8)
        return memory if num_bytes <= memory.size <= 2 * num_bytes else np.empty(num_bytes, np.uint8)
