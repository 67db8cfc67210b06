"""Write the demo's images: enlarged 8×8 digits, in a folder as untidy as real ones.

``digits.png`` has the digits: row ``d`` the first ones of digit ``d`` in the test set of "Optical Recognition
of Handwritten Digits" by E. Alpaydin and C. Kaynak (UCI Machine Learning Repository,
https://doi.org/10.24432/C50P49, CC BY 4.0), 8×8 pixels each, whose numbers from 0 to 16 are multiplied by 15.

Some classes are rare. Some files exist twice, one of them under two labels. Some are broken, and two are not
images. The folder is the same every time, byte for byte.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

_SMALL = 8  # pixels of a side
# How many examples each digit has: 3.6 times as many zeros as nines.
KEPT = (176, 168, 158, 146, 132, 118, 102, 86, 66, 48)
SIDES = (96, 112, 128, 144)  # pixels
DUPLICATES = 6
PAPER = np.array(
    [[250, 246, 236], [240, 246, 250], [247, 240, 246], [243, 248, 238]], np.float32
)  # RGB, one tint for each quarter of the images
INK = np.array([28, 34, 58], np.float32)


@dataclass(frozen=True, slots=True)
class Planted:
    """Counts of the faults in the folder."""

    num_files: int
    num_duplicates: int
    num_conflicts: int
    num_broken: int
    num_other: int


def write_digits(folder: Path) -> Planted:
    """Write ``folder/0`` to ``folder/9``. Files that already have the right content are not written again."""
    made = dict(_digits())
    images = len(made)
    made.update(_duplicates(made))
    broken, other = dict(_broken(made)), dict(_not_images())
    made.update(broken)
    made.update(other)
    for name, data in made.items():
        path = folder / name
        # An unchanged file keeps its time, so that a second run finds nothing changed.
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return Planted(
        num_files=len(made),
        num_duplicates=len(made) - images - len(broken) - len(other),
        num_conflicts=1,
        num_broken=len(broken),
        num_other=len(other),
    )


def _digits() -> Iterator[tuple[str, bytes]]:
    """(path, file) of each kept digit; every third a PNG, the others JPEGs."""
    sheet = np.array(Image.open(io.BytesIO(files(__package__).joinpath("digits.png").read_bytes())))
    for digit, kept in enumerate(KEPT):
        for number in range(kept):
            small = sheet[digit * _SMALL :, number * _SMALL :][:_SMALL, :_SMALL]
            pixels = _enlarged(small, SIDES[number // 4 % len(SIDES)], number % len(PAPER))
            kind = "png" if number % 3 == 0 else "jpg"
            yield f"{digit}/{digit}_{number:03d}.{kind}", _encoded(pixels, kind)


def _enlarged(small: npt.NDArray[np.uint8], side: int, tint: int) -> npt.NDArray[np.uint8]:
    """Ink on paper. small: uint8 [8, 8] from 0 to 240; returns uint8 [side, side, 3]."""
    padded = np.pad(small.astype(np.float32) / 240, 1)
    ink = np.clip(cv2.resize(padded, (side, side), interpolation=cv2.INTER_CUBIC), 0, 1)[..., None]
    return np.asarray(np.round(PAPER[tint] * (1 - ink) + INK * ink), np.uint8)


def _encoded(pixels: npt.NDArray[np.uint8], kind: str) -> bytes:
    sink = io.BytesIO()
    if kind == "png":
        Image.fromarray(pixels).save(sink, "PNG")
    else:
        Image.fromarray(pixels).save(sink, "JPEG", quality=92)
    return sink.getvalue()


def _duplicates(files: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """(path, file) of each copy; the last one is in the folder of another digit."""
    for digit in range(DUPLICATES):
        yield f"{digit}/copy of {digit}_{4 + digit:03d}.jpg", _pick(files, digit, 4 + digit)
    yield "7/1_025.jpg", _pick(files, 1, 25)


def _broken(files: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    yield "2/download-interrupted.jpg", _pick(files, 2, 31)[:1400]
    yield "5/half-copied.jpg", _pick(files, 5, 40)[:900]
    yield "3/empty.png", b""
    yield "8/notes.png", b"These are not the pixels you are looking for.\n"


def _not_images() -> Iterator[tuple[str, bytes]]:
    yield ".DS_Store", b"\x00\x00\x00\x01Bud1\x00"
    yield "4/.DS_Store", b"\x00\x00\x00\x01Bud1\x00"


def _pick(files: dict[str, bytes], digit: int, number: int) -> bytes:
    """The JPEG of this digit with this number, or the next one."""
    while (name := f"{digit}/{digit}_{number:03d}.jpg") not in files:
        number += 1
    return files[name]
