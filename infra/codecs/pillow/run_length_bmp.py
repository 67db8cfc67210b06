"""Decode run-length encoded BMPs (BI_RLE8 and BI_RLE4 of Microsoft's bitmap format).

Neither Pillow 12.3 nor OpenCV 5.0 decodes all of them. Pillow misplaces what follows an odd literal run in
RLE4 or an empty row, and refuses an early end. OpenCV misplaces pixels in RLE4.
"""

from __future__ import annotations

from PIL import Image, ImageFile

_RLE8, _RLE4 = 1, 2
_END_OF_ROW, _END_OF_BITMAP, _MOVE = 0, 1, 2


def is_run_length_bmp(image: Image.Image) -> bool:
    """Tell whether an opened image is a BMP that this module decodes."""
    return image.format == "BMP" and image.info.get("compression") in (_RLE8, _RLE4)


def load_run_length_bmp(image: Image.Image, data: bytes, salvage: bool) -> Image.Image:
    """Return the picture with its pixels, in the mode of the opened image.

    Args:
        image: opened by Pillow, not loaded: it gives size, palette and place of the data.
        data: the file.
        salvage: keep what there is of a file that ends early.

    Raises:
        EOFError: the file ends early.
        ValueError: a code lies outside the picture.
    """
    assert isinstance(image, ImageFile.ImageFile)
    tile = image.tile[0]
    painter = _Painter(image.width, image.height, is_rle4=image.info["compression"] == _RLE4)
    painter.follow(data[tile.offset :], salvage)
    # The last argument of Pillow's own decoder: -1 for pictures with the bottom row first.
    order = tile.args[-1] if isinstance(tile.args, tuple) else -1
    if image.mode == "1":
        bilevel = painter.canvas.translate(bytes([0]) + bytes([255]) * 255)
        return Image.frombytes("L", image.size, bilevel, "raw", "L", 0, order)
    picture = Image.frombytes(image.mode, image.size, painter.canvas, "raw", image.mode, 0, order)
    if image.palette is not None:
        picture.putpalette(image.palette)
    return picture


class _Painter:
    """Follows the codes, and paints indexes into the palette.

    Attributes:
        canvas: rows in the order of the file; 0 if the codes paint nothing.
    """

    def __init__(self, width: int, height: int, is_rle4: bool) -> None:
        self.canvas = bytearray(width * height)
        self._width, self._height, self._is_rle4 = width, height, is_rle4
        self._row = self._column = 0

    def follow(self, codes: bytes, salvage: bool) -> None:
        position = 0
        while position + 2 <= len(codes):
            count, value = codes[position], codes[position + 1]
            position += 2
            if count:
                self._repeat(count, value)
            elif value == _END_OF_ROW:
                self._row, self._column = self._row + 1, 0
            elif value == _END_OF_BITMAP:
                return
            elif value == _MOVE:
                right, up = codes[position : position + 2].ljust(2, b"\x00")
                self._row, self._column = self._row + up, self._column + right
                position += 2
            else:
                size = (value + 1) // 2 if self._is_rle4 else value
                self._copy(codes[position : position + size], value)
                position += size + size % 2
        if not salvage and (self._row, self._column) < (self._height - 1, self._width):
            raise EOFError("the codes end before the picture is full")

    def _repeat(self, count: int, value: int) -> None:
        # Some encoders let a run reach beyond the end of its row; Pillow and we cut it there.
        count = min(count, max(0, self._width - self._column))
        pair = bytes([value >> 4, value & 15]) if self._is_rle4 else bytes([value, value])
        self._paint((pair * (count // 2 + 1))[:count])

    def _copy(self, content: bytes, count: int) -> None:
        if self._is_rle4:
            content = bytes(index for byte in content for index in (byte >> 4, byte & 15))[:count]
        self._paint(content)

    def _paint(self, indexes: bytes) -> None:
        if indexes and (self._row >= self._height or self._column + len(indexes) > self._width):
            raise ValueError("its run-length encoded pixel data is damaged")
        start = self._row * self._width + self._column
        self.canvas[start : start + len(indexes)] = indexes
        self._column += len(indexes)
