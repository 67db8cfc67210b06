"""Arrays as PNG files whose bytes never change, whatever library is installed.

The SHA-256 of these bytes is the identity of an image that came as an array. So nothing in them is left to a
compressor: pixels are stored uncompressed, as PNG (third edition) and DEFLATE (RFC 1951, 3.2.4) allow. Every
reader of PNG decodes them.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOR_TYPES = {1: 0, 3: 2, 4: 6}  # channels -> grey, RGB, RGB with alpha
_BLOCK_BYTES = 0xFFFF  # the longest stored block
_ZLIB_HEADER = b"\x78\x01"


def stored_png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Encode pixels as a PNG file without compression; the same pixels always give the same bytes.

    Chunks IHDR, one IDAT and IEND; filter 0 for each line; stored blocks of 65,535 bytes.

    Args:
        pixels: uint8 [H, W, C], C = 1 (grey), 3 (RGB) or 4 (RGB with alpha).
    """
    height, width, channels = pixels.shape
    lines = np.zeros((height, 1 + width * channels), np.uint8)
    lines[:, 1:] = pixels.reshape(height, width * channels)
    raw = lines.tobytes()
    parts = [_ZLIB_HEADER]
    for start in range(0, len(raw), _BLOCK_BYTES):
        block = raw[start : start + _BLOCK_BYTES]
        is_last = start + _BLOCK_BYTES >= len(raw)
        parts += [struct.pack("<BHH", is_last, len(block), len(block) ^ 0xFFFF), block]
    parts.append(struct.pack(">I", zlib.adler32(raw)))
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    return b"".join(
        [_SIGNATURE, _chunk(b"IHDR", header), _chunk(b"IDAT", b"".join(parts)), _chunk(b"IEND", b"")]
    )


def png_bytes(height: int, width: int, channels: int) -> int:
    """Return the length of the file that ``stored_png`` makes of such pixels (bytes)."""
    raw = height * (1 + width * channels)
    num_blocks = -(-raw // _BLOCK_BYTES)
    return len(_SIGNATURE) + (12 + 13) + (12 + len(_ZLIB_HEADER) + 5 * num_blocks + raw + 4) + 12


def _chunk(name: bytes, data: bytes) -> bytes:
    crc = zlib.crc32(data, zlib.crc32(name))
    return b"".join((struct.pack(">I", len(data)), name, data, struct.pack(">I", crc)))
