"""Draw a grid of examples with captions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from shardmill.infra.errors import UsageError
from shardmill.training.reading.decode import resize_into

Pixels = npt.NDArray[np.uint8]

_CELL, _GAP, _MARGIN = 168, 10, 18  # pixels
_TITLE, _HEADING, _LINE = 19, 13, 12  # sizes of type (pixels)
_INK, _PALE, _PAPER = (28, 32, 36), (104, 112, 120), (255, 255, 255)
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
_ELLIPSIS = "..."  # and no finer signs: Pillow's own font has few


@dataclass(frozen=True, slots=True)
class Cell:
    """One image of the grid.

    Attributes:
        pixels: uint8 [h, w, 3].
        caption: lines below it, the first one stronger.
    """

    pixels: Pixels
    caption: tuple[str, ...]


def grid_picture(
    title: str, subtitle: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], side: int = _CELL
) -> Image.Image:
    """Draw the grid.

    Args:
        title: the first line.
        subtitle: the lines below it; folded if long.
        columns: the heading of each column.
        rows: each has at most as many cells as there are columns.
        side: of the square that each image is scaled to (pixels).
    """
    fonts = {size: ImageFont.load_default(size) for size in (_TITLE, _HEADING, _LINE)}
    width = 2 * _MARGIN + len(columns) * (side + _GAP) - _GAP
    folded = _folded(printable(subtitle), fonts[_HEADING], width - 2 * _MARGIN)
    captions = max((len(cell.caption) for row in rows for cell in row), default=0)
    top = _MARGIN + _TITLE + 10 + len(folded) * (_HEADING + 4) + 12
    first = top + _HEADING + 8
    pitch = side + 6 + captions * (_LINE + 4) + _GAP
    picture = Image.new("RGB", (width, first + len(rows) * pitch + _MARGIN - _GAP), _PAPER)
    draw = ImageDraw.Draw(picture)
    draw.text((_MARGIN, _MARGIN), printable(title), _INK, fonts[_TITLE])
    for number, text in enumerate(folded):
        draw.text((_MARGIN, _MARGIN + _TITLE + 10 + number * (_HEADING + 4)), text, _PALE, fonts[_HEADING])
    for number, heading in enumerate(columns):
        draw.text((_MARGIN + number * (side + _GAP), top), heading, _PALE, fonts[_HEADING])
    for line, row in enumerate(rows):
        for number, cell in enumerate(row):
            left, upper = _MARGIN + number * (side + _GAP), first + line * pitch
            _place(picture, draw, cell, (left, upper, side), fonts[_LINE])
    return picture


def check_suffix(out: Path, others: Sequence[str] = ()) -> None:
    """Check that the suffix of a file names a format of pictures, or is one of the others.

    Raises:
        UsageError: it is none of these.
    """
    known = (*SUFFIXES, *others)
    if out.suffix.lower() not in known:
        raise UsageError(f"{out} has no suffix of a picture format", f"use one of {', '.join(known)}")


def _place(
    picture: Image.Image,
    draw: ImageDraw.ImageDraw,
    cell: Cell,
    square: tuple[int, int, int],
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
) -> None:
    x, y, side = square
    height, width = cell.pixels.shape[:2]
    ratio = side / max(height, width)
    scaled = np.empty((max(1, round(height * ratio)), max(1, round(width * ratio)), 3), np.uint8)
    resize_into(cell.pixels, scaled)
    left = x + (side - scaled.shape[1]) // 2
    upper = y + (side - scaled.shape[0]) // 2
    picture.paste(Image.fromarray(scaled), (left, upper))
    for number, line in enumerate(cell.caption):
        text = _shortened(printable(line), font, side)
        at = x, y + side + 5 + number * (_LINE + 4)
        draw.text(at, text, _PALE if number else _INK, font)


def printable(text: str) -> str:
    """Replace characters that a font cannot show. Names come from folders, which can have any name."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def _shortened(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + _ELLIPSIS) > width:
        text = text[:-1]
    return text + _ELLIPSIS


def _folded(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines
