"""Refuse damage that Pillow does not report, decode BMPs that it misplaces, and word its errors.

Run-length encoded BMPs (BI_RLE8 and BI_RLE4 of Microsoft's bitmap format) are decoded here: neither Pillow
12.3 nor OpenCV 5.0 decodes all of them. Pillow misplaces what follows an odd literal run in RLE4 or an empty
row, and refuses an early end. OpenCV misplaces pixels in RLE4.
"""

from __future__ import annotations

from PIL import Image, ImageFile, PpmImagePlugin

from shardmill.infra.codecs.formats import FORMATS, ImageRejected
from shardmill.infra.codecs.structure.png_chunks import (
    PngFile,
    can_hold_all_rows,
    holds_all_rows,
    is_undamaged,
    last_row_decoded,
)

_RLE8, _RLE4 = 1, 2
_END_OF_ROW, _END_OF_BITMAP, _MOVE = 0, 1, 2
_MEANINGS = (
    ("decoder error", "its pixel data is damaged, or compressed in a way that is not supported"),
    ("broken data stream", "its pixel data is damaged"),
    ("cannot load this image", "it holds no pixel data"),
    ("unrecognized data stream", "its pixel data is damaged"),
    ("unrecognized image mode", "its kind of pixels is not supported"),
    ("unknown compression", "it is compressed in a way that is not supported"),
)


def ends_early(data: bytes, found: str) -> bool:
    """Tell whether a file lacks its end, for formats whose library does not say so clearly."""
    return found == "bmp" and int.from_bytes(data[2:6], "little") > len(data)


def unidentified(found: str, is_short: bool) -> ImageRejected:
    """Return the rejection of a file of a known format whose header the library refuses."""
    if is_short:
        return ImageRejected("truncated", f"the {FORMATS[found]} file ends early")
    return ImageRejected(
        "corrupt",
        f"has the signature of a {FORMATS[found]} file, but a header that is damaged or not supported",
    )


def rejected_by_library(error: Exception, found: str, is_short: bool) -> ImageRejected:
    """Return the rejection that an error of Pillow stands for.

    Args:
        error: any error that a plugin raised.
        found: the format.
        is_short: the file lacks its end.
    """
    text = str(error) or type(error).__name__
    lowered = text.lower()
    ends = any(words in lowered for words in ("truncated", "but only got", "not enough image data"))
    if is_short or ends or isinstance(error, EOFError):
        return ImageRejected("truncated", f"the {FORMATS[found]} file ends early")
    if "unsupported" in lowered or "not supported" in lowered:
        return ImageRejected("unsupported", f"a kind of {FORMATS[found]} file that is not read: {text}")
    meaning = next((meaning for said, meaning in _MEANINGS if said in lowered), text)
    return ImageRejected("corrupt", f"not a sound {FORMATS[found]} file: {meaning}")


# Places of the bits of a pixel in a BMP: OS/2's header is shorter than all others.
_OLD_BMP_HEADER_BYTES, _OLD_BMP_BITS_AT, _BMP_BITS_AT = 12, 24, 28
_BMP_COMPRESSION_AT, _BMP_OPACITY_AT, _WITH_MASKS, _SHORTEST_WITH_OPACITY = 30, 66, 3, 56


def check_before_loading(data: bytes, png: PngFile | None, image: Image.Image, salvage: bool) -> None:
    """Check the structure of the file, before memory is taken for the picture.

    Args:
        data: the file.
        png: header and chunks of a PNG, or None for another format.
        image: opened, not loaded.
        salvage: accept a PNG that lacks rows.

    Raises:
        ImageRejected: "truncated", "corrupt" or "unsupported".
    """
    if image.format == "BMP" and not is_run_length_bmp(image):
        _check_bits(data, image.mode)
    if image.format == "GIF":
        _check_covered(image)
    if isinstance(image, PpmImagePlugin.PpmImageFile):
        args = image.tile[0].args  # with the largest value, if it is another than that of the samples' type
        if image.mode not in ("L", "RGB") or (isinstance(args, tuple) and args[1] > 255):
            raise ImageRejected("unsupported", "a PNM of more than 8 bits; save it as PNG of 16 bits")
    if png is not None and not is_undamaged(png):
        raise ImageRejected("corrupt", "not a sound PNG file: its pixel data does not match its checksums")
    if png is not None and not salvage and not can_hold_all_rows(png):
        raise ImageRejected("truncated", "the PNG file ends early: most rows are missing")


def _check_bits(data: bytes, mode: str) -> None:
    """Check that Pillow will read as many bits a pixel as a BMP has, and its opacity.

    Pillow 12.3 leaves a palette out if it begins with the greys of its own, and then reads 1 bit a pixel (two
    colours) or 8 bits, whatever the file has. It leaves the opacity of pixels of 16 bits out.
    """
    at = _OLD_BMP_BITS_AT if data[14] == _OLD_BMP_HEADER_BYTES else _BMP_BITS_AT
    bits = int.from_bytes(data[at : at + 2], "little")
    if bits != {"1": 1, "L": 8}.get(mode, bits):
        raise ImageRejected("unsupported", f"a BMP of {bits} bits a pixel with these greys; save it as PNG")
    masked = int.from_bytes(data[_BMP_COMPRESSION_AT : _BMP_COMPRESSION_AT + 4], "little") == _WITH_MASKS
    if bits == 16 and masked and data[14] >= _SHORTEST_WITH_OPACITY and any(data[_BMP_OPACITY_AT:][:4]):
        raise ImageRejected("unsupported", "a BMP of 16 bits a pixel with opacity; save it as PNG")


def _check_covered(image: Image.Image) -> None:
    """Refuse a GIF whose first frame leaves a part of the canvas free, without transparency.

    The specification gives this part a background colour. Pillow takes that, libvips black, ImageMagick
    another colour, and browsers show it transparent.
    """
    assert isinstance(image, ImageFile.ImageFile)
    if image.tile and image.tile[0].extents != (0, 0, *image.size) and "transparency" not in image.info:
        raise ImageRejected(
            "unsupported",
            "a GIF whose first frame does not cover its canvas, and nobody can say what colour is around it; "
            "save it as PNG",
        )


def check_after_loading(png: PngFile | None, image: Image.Image, salvage: bool) -> None:
    """Check that a PNG had data for all rows.

    Pillow leaves missing rows zero. So the data is counted only if the row that is decoded last is zero.

    Args:
        png: header and chunks of a PNG, or None for another format.
        image: loaded.
        salvage: accept a picture that lacks rows.

    Raises:
        ImageRejected: "truncated".
    """
    if png is None or salvage:
        return
    row = last_row_decoded(png)
    if row is not None and image.crop((0, row, image.width, row + 1)).getbbox(alpha_only=False) is not None:
        return
    if not holds_all_rows(png):
        raise ImageRejected("truncated", "the PNG file ends early: its last rows are missing")


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
                content = codes[position : position + size]
                if self._is_rle4:
                    content = bytes(index for byte in content for index in (byte >> 4, byte & 15))[:value]
                self._paint(content)
                position += size + size % 2
        if not salvage and (self._row, self._column) < (self._height - 1, self._width):
            raise EOFError("the codes end before the picture is full")

    def _repeat(self, count: int, value: int) -> None:
        # Some encoders let a run reach beyond the end of its row; Pillow and we cut it there.
        count = min(count, max(0, self._width - self._column))
        pair = bytes([value >> 4, value & 15]) if self._is_rle4 else bytes([value, value])
        self._paint((pair * (count // 2 + 1))[:count])

    def _paint(self, indexes: bytes) -> None:
        if indexes and (self._row >= self._height or self._column + len(indexes) > self._width):
            raise ValueError("its run-length encoded pixel data is damaged")
        start = self._row * self._width + self._column
        self.canvas[start : start + len(indexes)] = indexes
        self._column += len(indexes)
