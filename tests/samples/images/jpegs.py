"""JPEGs that no encoder of the tests writes: of any sampling, and with scans left out."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import cv2
import numpy as np
from PIL import Image

from shardmill.infra.codecs import Pixels
from shardmill.infra.codecs.jpeg.segments import EOI, SOI, SOS, header_segments
from tests.samples.images.forms import saved

_SOF0, _DQT, _DHT = 0xC0, 0xDB, 0xC4


def sampled_jpeg(planes: Sequence[Pixels], sampling: Sequence[tuple[int, int]]) -> bytes:
    """Return a baseline JPEG with a scan for each component.

    A scan of one component has the same blocks as a grey JPEG of its size, so each is cut out of such a file.

    Args:
        planes: uint8 [H, W] of each component, all of the same size.
        sampling: horizontal and vertical sampling factor of each component.
    """
    height, width = planes[0].shape
    most = max(h for h, _ in sampling), max(v for _, v in sampling)
    tables, scans, frame = b"", [], struct.pack(">BHHB", 8, height, width, len(planes))
    for name, (plane, (h, v)) in enumerate(zip(planes, sampling, strict=True), 1):
        size = -(-width * h // most[0]), -(-height * v // most[1])
        grey = saved(
            Image.fromarray(cv2.resize(plane, size, interpolation=cv2.INTER_AREA)), "JPEG", quality=95
        )
        frame += bytes([name, h << 4 | v, 0])
        tables = b"".join(
            grey[start - 4 : end] for marker, start, end in header_segments(grey) if marker in (_DQT, _DHT)
        )
        begin = next(end for marker, _, end in header_segments(grey) if marker == SOS)
        scans.append(_segment(SOS, bytes([1, name, 0, 0, 63, 0])) + grey[begin:-2])
    return SOI + tables + _segment(_SOF0, frame) + b"".join(scans) + EOI


def first_scans(data: bytes, count: int) -> bytes:
    """Return a JPEG with only its first scans, and with its end mark."""
    end = 0
    for _ in range(count + 1):
        end = data.index(b"\xff\xda", end + 2)
    return data[:end] + EOI


def scan_count(data: bytes) -> int:
    """Return the number of scans."""
    return data.count(b"\xff\xda")


def noise(height: int = 64, width: int = 80, channels: int = 3) -> Pixels:
    """Return uint8 [H, W, channels] of soft noise, which a JPEG holds well."""
    random = np.random.default_rng(0).integers(0, 256, (height // 8, width // 8, channels), dtype=np.uint8)
    enlarged = cv2.resize(random, (width, height), interpolation=cv2.INTER_CUBIC)
    return enlarged.reshape(height, width, channels)


def _segment(marker: int, content: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content
