"""Run-length encoded BMPs, painted while they are written: what a file shows is known without a decoder."""

from __future__ import annotations

import random
import struct

import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs import Pixels

_HEADERS_BYTES = 14 + 40


class RunLengthPainter:
    """Writes the codes of one BMP and paints what they mean (BI_RLE4 and BI_RLE8 of the BMP format).

    Attributes:
        canvas: uint8 [H, W] indexes into the palette, bottom row first; 0 where nothing was painted.
        codes: what was written.
    """

    def __init__(self, height: int, width: int, bits: int) -> None:
        self.canvas: npt.NDArray[np.uint8] = np.zeros((height, width), np.uint8)
        self.codes = b""
        self.row = self.column = 0
        self._bits = bits

    @property
    def room(self) -> int:
        """Pixels that are left in the row."""
        return self.canvas.shape[1] - self.column

    def run(self, length: int, first: int, second: int) -> None:
        """Repeat a value, or in RLE4 two values in turn."""
        if self._bits == 8:
            second = first
        value = first if self._bits == 8 else first << 4 | second
        self.codes += bytes([length, value])
        self._paint([first if index % 2 == 0 else second for index in range(length)])

    def literal(self, values: list[int]) -> None:
        """Write at least three values as they are."""
        content = bytes(values)
        if self._bits == 4:
            padded = [*values, 0]
            content = bytes(padded[i] << 4 | padded[i + 1] for i in range(0, len(values), 2))
        self.codes += bytes([0, len(values)]) + content + bytes(len(content) % 2)
        self._paint(values)

    def end_row(self) -> None:
        """Go to the begin of the next row."""
        self.codes += b"\x00\x00"
        self.row, self.column = self.row + 1, 0

    def move(self, right: int, up: int) -> None:
        """Leave pixels out."""
        self.codes += bytes([0, 2, right, up])
        self.row, self.column = self.row + up, self.column + right

    def file(self, palette: Pixels) -> bytes:
        """Return the BMP. ``palette``: uint8 [N, 3], red, green, blue."""
        height, width = self.canvas.shape
        codes = self.codes + b"\x00\x01"
        colors = b"".join(bytes([*color[::-1].tolist(), 0]) for color in palette)
        start = _HEADERS_BYTES + len(colors)
        compression = {8: 1, 4: 2}[self._bits]
        return (
            struct.pack("<2sIHHI", b"BM", start + len(codes), 0, 0, start)
            + struct.pack(
                "<IiiHHIIiiII",
                40,
                width,
                height,
                1,
                self._bits,
                compression,
                len(codes),
                0,
                0,
                len(palette),
                0,
            )
            + colors
            + codes
        )

    def picture(self, palette: Pixels) -> Pixels:
        """Return what the file shows: uint8 [H, W, 3]."""
        return palette[self.canvas[::-1]]

    def _paint(self, values: list[int]) -> None:
        self.canvas[self.row, self.column : self.column + len(values)] = values
        self.column += len(values)


def painted(seed: int, bits: int) -> tuple[bytes, Pixels]:
    """Return a random run-length encoded BMP and its pixels (uint8 [H, W, 3])."""
    random_ = random.Random(seed)
    height, width, colors = random_.randrange(1, 20), random_.randrange(1, 40), 1 << min(bits, 5)
    palette = np.random.default_rng(seed).integers(0, 256, (colors, 3), dtype=np.uint8)
    painter = RunLengthPainter(height, width, bits)
    while painter.row < height and random_.random() > 0.02:
        kind = random_.choice(("run", "run", "literal", "end", "move"))
        up = random_.randrange(3)
        if kind == "run" and painter.room:
            painter.run(
                random_.randint(1, painter.room), random_.randrange(colors), random_.randrange(colors)
            )
        elif kind == "literal" and painter.room >= 3:
            painter.literal([random_.randrange(colors) for _ in range(random_.randint(3, painter.room))])
        elif kind == "move" and painter.room > 1 and painter.row + up < height:
            painter.move(random_.randrange(painter.room), up)
        elif kind == "end" and painter.row + 1 < height:
            painter.end_row()
    return painter.file(palette), painter.picture(palette)
