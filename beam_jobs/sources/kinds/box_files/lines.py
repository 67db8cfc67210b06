"""Texts with an object a line.

* DOTA (https://captain-whu.github.io/DOTA/dataset.html), also of Roboflow: four corners, class, difficulty.
* KITTI (https://www.cvlibs.net/datasets/kitti/eval_object.php): class, truncation, occlusion, angle, and the
  left, top, right and bottom edge of the box. ``DontCare`` is no object.
* VisDrone (https://github.com/VisDrone/VisDrone2018-DET-toolkit): left, top, width, height, score, class. A
  score of 0, or class 0, says that the region is not judged.
* WIDER FACE (http://shuoyang1213.me/WIDERFACE/): the image, the number of its faces, and a line for each:
  left, top, width, height, four flags, and whether the face is valid. An image without faces has zeros.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from shardmill.beam_jobs.sources.annotations.collecting import box_of, edges_of_size
from shardmill.beam_jobs.sources.annotations.shapes import Shape, points_of
from shardmill.beam_jobs.sources.kinds.box_files.forms import Form, Noted, Picture, edges, number_of

_REGION = "unjudged region"
_VISDRONE = (
    "", "pedestrian", "people", "bicycle", "car", "van", "truck", "tricycle", "awning-tricycle", "bus",
    "motor", "others",
)  # fmt: skip
_FACE = "face"
_NUMBERS_OF_FACE, _IS_INVALID = 10, 7  # numbers in a line, and the place of the flag


def _dota(line: str) -> Noted | None:
    *numbers, name, difficulty = line.split() if len(line.split()) == 10 else [*line.split(), "0"]
    if len(numbers) != 8 or not difficulty.isdecimal():
        return None
    corners = points_of([number_of(one) for one in numbers])
    shape = Shape(corners=corners) if len(corners) else None
    return Noted(name, shape=shape, is_crowd=difficulty != "0")


def _kitti(line: str) -> Noted | None:
    fields = line.split()
    if len(fields) not in (15, 16):
        return None
    box = box_of([number_of(one) for one in fields[4:8]])
    left_out = _REGION if fields[0] == "DontCare" else ""
    return Noted(fields[0], None if box is None else edges(*box), left_out=left_out)


def _visdrone(line: str) -> Noted | None:
    fields = [number_of(one) for one in line.rstrip().rstrip(",").split(",")]
    if len(fields) != 8 or not (fields[5].is_integer() and 0 <= fields[5] < len(_VISDRONE)):
        return None
    left_out = _REGION if 0 in (fields[4], fields[5]) else ""
    return Noted(_VISDRONE[int(fields[5])], edges_of_size(fields[:4]), left_out=left_out)


def _a_line_each(understand: Callable[[str], Noted | None]) -> Callable[[str], Iterator[Picture]]:
    """Return a reader of texts with an object a line; other lines are objects without numbers."""

    def read(text: str) -> Iterator[Picture]:
        lines = [line for line in text.splitlines() if line.strip()]
        lines = [line for line in lines if not line.startswith(("imagesource:", "gsd:"))]
        yield Picture(None, [understand(line) or Noted("") for line in lines])

    return read


def _wider(text: str) -> Iterator[Picture]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    at = 0
    while at < len(lines):
        name, count = lines[at], lines[at + 1] if at + 1 < len(lines) else ""
        if not count.isdecimal():
            raise ValueError(f"the number of faces of {name!r} is missing")
        faces = lines[at + 2 : at + 2 + max(int(count), 1)]
        if not int(count) and faces and len(faces[0].split()) != _NUMBERS_OF_FACE:
            faces = []  # the line of zeros is missing
        yield Picture(name, [_face(line) for line in faces if int(count)])
        at += 2 + len(faces)


def _face(line: str) -> Noted:
    numbers = [number_of(one) for one in line.split()]
    if len(numbers) != _NUMBERS_OF_FACE:
        return Noted(_FACE)
    return Noted(_FACE, edges_of_size(numbers[:4]), is_crowd=numbers[_IS_INVALID] == 1)


_NUMBER = rb"-?[0-9.]+(?:e[+-]?[0-9]+)?"
TEXTS = (
    Form(
        "DOTA",
        ".txt",
        re.compile(
            rb"\A(\xef\xbb\xbf)?(imagesource:[^\n]*\n)?(gsd:[^\n]*\n)?\s*("
            + _NUMBER
            + rb"[ \t]+){8}[^\d\s]\S*([ \t]+\d)?[ \t]*\r?$",
            re.MULTILINE,
        ),
        _a_line_each(_dota),
    ),
    Form(
        "KITTI",
        ".txt",
        re.compile(rb"\A[A-Za-z_]+( " + _NUMBER + rb"){14,15} *\r?$", re.MULTILINE),
        _a_line_each(_kitti),
    ),
    Form(
        "VisDrone",
        ".txt",
        re.compile(rb"\A(-?\d+,){7}-?\d+,?\r?$", re.MULTILINE),
        _a_line_each(_visdrone),
    ),
    Form(
        "WIDER FACE",
        ".txt",
        re.compile(
            rb"\A[^\n]+\.(?:jpe?g|png) *\r?\n(?:0 *\r?\n[^\n]+\.(?:jpe?g|png)|"
            rb"\d+ *\r?\n(?:-?\d+ +){9}-?\d+) *\r?$",
            re.IGNORECASE | re.MULTILINE,
        ),
        _wider,
        re.compile(rb"\A([^\r\n]+?) *\r?\n"),
    ),
)
