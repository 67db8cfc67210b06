"""List the files that are predicted, and decode them as ``prepare`` does, or say why not."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from infra.codecs import ImageRejected, Pixels, decode
from infra.storage.names import uri_of
from training.models.spec import Fit
from training.reading.decode import resize_into

UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Input:
    """One file, decoded or refused; or a folder that cannot be listed.

    Attributes:
        path: as given, or the folder as given with the path below it.
        image: a PNG of what the model sees, in its size; None: refused.
        height, width: of the upright image (pixels); 0: refused.
        shown: the upright image in the size for people, uint8 [h, w, 3]; None: it was not asked for.
        reason, message: why it was refused: a code, and a sentence for people.
    """

    path: str
    image: bytes | None = None
    height: int = 0
    width: int = 0
    shown: Pixels | None = None
    reason: str | None = None
    message: str | None = None


def list_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield files as given, and for a folder all files below it, sorted by path; hidden ones are left out.

    A folder that cannot be listed is yielded itself: ``read_input`` refuses it. A link to a folder above it
    is not followed, since that folder's files are yielded anyway.
    """
    for path in paths:
        yield from _files_at(path)


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; False if the system does not allow to look."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _files_at(place: Path) -> Iterator[Path]:
    """Yield the file, or the files below the folder."""
    # Paths that are still to be looked at, the next one last, each with the identities of the folders above.
    waiting: list[tuple[Path, frozenset[tuple[int, int]]]] = [(place, frozenset())]
    while waiting:
        path, above = waiting.pop()
        try:
            found = path.stat()
            within = sorted(path.iterdir(), reverse=True) if stat.S_ISDIR(found.st_mode) else None
        except OSError:
            yield path
            continue
        identity = (found.st_dev, found.st_ino)
        if within is None:
            yield path
        elif identity not in above:
            inside = above | {identity}
            waiting += [(each, inside) for each in within if not each.name.startswith(".")]


def read_input(path: Path, size: int, fit: Fit = "crop", shown_side: int = 0) -> Input:
    """Read and decode one file.

    Args:
        path: the file.
        size: height and width of the model's input (pixels).
        fit: what the model sees of images that are not square.
        shown_side: the longer side of the image for people, at most (pixels); 0: none is wanted.
    """
    name = uri_of(str(path))
    try:
        data = path.read_bytes()
    except IsADirectoryError:
        return Input(name, reason=UNREADABLE, message="the folder cannot be listed")
    except OSError as error:
        return Input(name, reason=UNREADABLE, message=error.strerror or str(error))
    try:
        pixels = decode(data, 3).pixels
    except ImageRejected as error:
        return Input(name, reason=error.reason, message=error.message)
    height, width = pixels.shape[:2]
    seen = pixels if fit == "stretch" else _central_square(pixels)
    out = np.empty((size, size, 3), np.uint8)
    resize_into(np.ascontiguousarray(seen), out)
    return Input(name, _png(out), height, width, _shown(pixels, shown_side))


def _shown(pixels: Pixels, side: int) -> Pixels | None:
    """Return an image whose longer side has at most so many pixels; None for 0."""
    height, width = pixels.shape[:2]
    if not side or max(height, width) <= side:
        return pixels if side else None
    ratio = side / max(height, width)
    out = np.empty((max(1, round(height * ratio)), max(1, round(width * ratio)), 3), np.uint8)
    resize_into(np.ascontiguousarray(pixels), out)
    return out


def _central_square(pixels: Pixels) -> Pixels:
    height, width = pixels.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return pixels[top : top + side, left : left + side]


def _png(pixels: Pixels) -> bytes:
    done, encoded = cv2.imencode(".png", pixels[:, :, ::-1], [cv2.IMWRITE_PNG_COMPRESSION, 0])
    assert done, "PNG holds any pixels"
    return bytes(encoded)
