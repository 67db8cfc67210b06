"""What a form of annotation files is: how a file begins, and the images and objects that it names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shardmill.beam_jobs.sources.annotations.collecting import Box
from shardmill.beam_jobs.sources.annotations.shapes import Shape

BAD_NUMBERS = "without the numbers of their shape"


@dataclass(frozen=True, slots=True)
class Noted:
    """An object as a file notes it.

    Attributes:
        name: its class; None if it has none.
        box: its edges (pixels); None: those of its shape.
        shape: what it has beside its box.
        segmentation: run lengths of its mask, as COCO writes them; None: it has none.
        is_crowd: it is a group of objects, or one that is not to be judged.
        left_out: what it is if it is no object, such as "line"; else empty.
    """

    name: str | None
    box: Box | None = None
    shape: Shape | None = None
    segmentation: Any = None
    is_crowd: bool = False
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """An image as a file notes it.

    Attributes:
        name: as the file writes it; None if it names none, or is of the image that is named like the file.
        objects: its objects.
        size: height and width (pixels); None if they are not told.
        split: that the file gives, or None.
        group: images of one group stay in one split; None: it is of none.
        fault: why it cannot be used, in words; None: it can.
    """

    name: str | None
    objects: Sequence[Noted] = ()
    size: tuple[int, int] | None = None
    split: str | None = None
    group: str | None = None
    fault: str | None = None


@dataclass(frozen=True)
class Form:
    """A form of annotation files.

    Attributes:
        called: what has it.
        ending: of the names of its files.
        begins: matches the first bytes of a file.
        read: returns the images of the text of a file. It raises ValueError if the text is of another form.
        image: finds the name of the first image; None: a file describes the image that is named like it.
    """

    called: str
    ending: str
    begins: re.Pattern[bytes]
    read: Callable[[str], Iterable[Picture]]
    image: re.Pattern[bytes] | None = None


def edges(left: float, top: float, right: float, bottom: float) -> Box:
    """Return a box of its left, top, right and bottom edge."""
    return top, left, bottom, right


def number_of(text: str) -> float:
    """Return the number that a text is; not a number if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
