"""Store cached images in memory that child processes share, or in a mapped file.

The file, written once and whole (``shardmill.training.reading.cache.folder``), little-endian::

    images, one behind the other | offsets int64 [N + 1] | CRC-32C uint32 [N] | channels uint8 [N]
    | number of images int64 | magic
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import tempfile
import weakref
from collections.abc import Callable, Iterable
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import google_crc32c
import numpy as np
import numpy.typing as npt

from shardmill.infra.errors import CorruptDataError, StorageError

MAGIC = b"SMCACHE1"
_FOOTER = struct.Struct("<q8s")
_PER_IMAGE_BYTES = 8 + 4 + 1


class CachedImage(NamedTuple):
    """The bytes of an image, and its number of channels."""

    image: memoryview
    channels: int


class ImageStore(Protocol):
    """Stores images by ordinal. Safe for many threads."""

    def get(self, ordinal: int) -> CachedImage | None:
        """Return an image; None if it was not stored yet."""

    def put(self, ordinal: int, image: bytes | memoryview, channels: int) -> None:
        """Store an image. The image of an ordinal never changes."""


class MemoryStore:
    """Stores images in memory, which processes that this one forks or spawns later share."""

    def __init__(self, offsets: npt.NDArray[np.int64], descriptor: int | None = None) -> None:
        """Reserve the memory.

        Args:
            offsets: int64 [N + 1], where each image begins, and the end (bytes).
            descriptor: of the memory of another process, to share it; closed with this object.

        Raises:
            StorageError: the memory of this system needs a file, and the disk has no room for it.
        """
        num_images, num_bytes = offsets.size - 1, int(offsets[-1])
        self._descriptor = _reserved(num_bytes + num_images) if descriptor is None else descriptor
        weakref.finalize(self, os.close, self._descriptor)
        memory = mmap.mmap(self._descriptor, 0)
        self._offsets = offsets
        self._images = memoryview(memory)[:num_bytes]
        # The channels of each image, 0 while it is missing: set last, so that a marked image is complete.
        self._channels = np.frombuffer(memory, np.uint8, num_images, num_bytes)

    def get(self, ordinal: int) -> CachedImage | None:
        """See ``ImageStore``."""
        channels = int(self._channels[ordinal])
        if not channels:
            return None
        return CachedImage(self._images[self._offsets[ordinal] : self._offsets[ordinal + 1]], channels)

    def put(self, ordinal: int, image: bytes | memoryview, channels: int) -> None:
        """See ``ImageStore``."""
        begin, end = int(self._offsets[ordinal]), int(self._offsets[ordinal + 1])
        if len(image) != end - begin:
            raise CorruptDataError(f"image {ordinal} has {len(image)} bytes, its index says {end - begin}")
        self._images[begin:end] = image
        self._channels[ordinal] = channels

    def __reduce__(self) -> tuple[Callable[..., MemoryStore], tuple[Any, ...]]:
        if get_spawning_popen() is None:
            return MemoryStore, (self._offsets,)  # elsewhere, an empty store
        return _shared_store, (self._offsets, DupFd(self._descriptor))


def _reserved(num_bytes: int) -> int:
    """Return the descriptor of so much memory, all zeros: a file without a name."""
    if hasattr(os, "memfd_create"):  # Linux: not in /dev/shm, which containers keep small
        descriptor = os.memfd_create("shardmill-cache")
    else:  # elsewhere the system writes pages to the disk only when it needs their memory
        folder = tempfile.gettempdir()
        if shutil.disk_usage(folder).free < num_bytes:
            problem = f"a cache in memory takes {num_bytes:,} bytes of {folder}, which has less room"
            raise StorageError(problem, "free space there, or let TMPDIR name another folder")
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, max(num_bytes, 1))
    return descriptor


def _shared_store(offsets: npt.NDArray[np.int64], descriptor: Any) -> MemoryStore:
    return MemoryStore(offsets, descriptor.detach())


class DiskStore:
    """Reads images from a file of this machine, which is complete from the start."""

    def __init__(self, path: Path, num_images: int) -> None:
        """Map the file.

        Raises:
            CorruptDataError: the file is not a cache of ``num_images``.
        """
        self.path = path
        if path.stat().st_size < _FOOTER.size:
            raise self._damaged("it is too short")
        with path.open("rb") as file:
            self._map = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        count, magic = _FOOTER.unpack(self._map[-_FOOTER.size :])
        begin = len(self._map) - _FOOTER.size - count * _PER_IMAGE_BYTES - 8
        if magic != MAGIC or count != num_images or begin < 0:
            raise self._damaged("it ends early")
        self._offsets = np.frombuffer(self._map, "<i8", count + 1, begin)
        self._crcs = np.frombuffer(self._map, "<u4", count, begin + 8 * (count + 1))
        self._channels = np.frombuffer(self._map, np.uint8, count, begin + 8 * (count + 1) + 4 * count)
        if self._offsets[0] != 0 or self._offsets[-1] != begin or np.any(np.diff(self._offsets) < 0):
            raise self._damaged("its offsets do not fit its size")

    def get(self, ordinal: int) -> CachedImage:
        """See ``ImageStore``.

        Raises:
            CorruptDataError: the bytes differ from those that were written.
        """
        image = self._map[int(self._offsets[ordinal]) : int(self._offsets[ordinal + 1])]
        if google_crc32c.value(bytes(image)) != self._crcs[ordinal]:
            raise self._damaged(f"the checksum of image {ordinal} does not match")
        return CachedImage(image, int(self._channels[ordinal]))

    def put(self, ordinal: int, image: bytes | memoryview, channels: int) -> None:
        """Raise an error: every image is stored already."""
        raise AssertionError(f"image {ordinal} of {self.path} was there")

    def _damaged(self, what: str) -> CorruptDataError:
        return CorruptDataError(
            f"the cache {self.path} is damaged: {what}", f"delete it; it is made again: rm {self.path}"
        )

    def __reduce__(self) -> tuple[type[DiskStore], tuple[Path, int]]:
        return DiskStore, (self.path, self._crcs.size)


def write_store(file: BinaryIO, images: Iterable[tuple[bytes | memoryview, int]]) -> None:
    """Write the file of a ``DiskStore``.

    Args:
        file: to write to.
        images: (bytes, channels) of each, by ordinal.
    """
    ends, crcs, channels = [0], [], []
    for image, depth in images:
        file.write(image)
        ends.append(ends[-1] + len(image))
        crcs.append(google_crc32c.value(bytes(image)))
        channels.append(depth)
    file.write(np.array(ends, "<i8").tobytes())
    file.write(np.array(crcs, "<u4").tobytes())
    file.write(np.array(channels, np.uint8).tobytes())
    file.write(_FOOTER.pack(len(crcs), MAGIC))
