"""Damaged images, made from sound ones of many kinds.

``mutant(number)`` is a pure function, so a failure can be repeated by its number. The command converts
mutants and prints the number of each and then the outcome ("number reason"). So a process that dies or hangs
has named the mutant that did it::

    python -m tests.samples.images.mutants 0 200
"""

from __future__ import annotations

import faulthandler
import functools
import random
import re
import signal
import sys
import zlib

import numpy as np
from PIL import Image

from shardmill.infra.codecs import Pixels
from tests.samples.images.bmps import painted
from tests.samples.images.forms import gradient, rgb_profile, saved

SECONDS_AN_IMAGE = 20  # far beyond what any of these small images should take, on any machine
FORMATS = ("jpeg", "png", "webp", "gif", "tiff", "bmp")

_CHUNK = re.compile(rb"IHDR|PLTE|tRNS|IDAT|iCCP|eXIf|acTL|fcTL|fdAT|IEND")


@functools.cache
def seeds(format_: str) -> tuple[bytes, ...]:
    """Return sound files of one format, of all kinds that are decoded in different ways."""
    smooth, rough = Image.fromarray(gradient(80, 120)), Image.fromarray(_noise(60, 50))
    clear = smooth.copy()
    clear.putalpha(Image.linear_gradient("L").resize(smooth.size))
    deep = Image.fromarray(np.asarray(smooth.convert("L")).astype(np.uint16) * 257)
    exif = Image.Exif()
    exif[0x0112] = 6
    info = {"exif": exif, "icc_profile": rgb_profile(swapped=True)}
    frames = {"save_all": True, "append_images": [rough.resize(smooth.size), smooth]}
    made: dict[str, list[tuple[Image.Image, dict[str, object]]]] = {
        "jpeg": [
            (smooth, {}), (rough, {"quality": 95}), (rough, {"progressive": True, **info}),
            (smooth.convert("L"), {}),
            (smooth, {"subsampling": 0, "restart_marker_blocks": 3}), (rough.convert("CMYK"), info),
            (smooth, {"keep_rgb": True, "subsampling": 0}), (smooth, {"subsampling": 1, **info}),
        ],
        "png": [
            (smooth, info), (clear, {}), (deep, {}), (smooth.convert("P"), {}), (smooth.convert("1"), {}),
            (clear.convert("LA"), {}), (smooth, frames), (clear.convert("P"), {}),
        ],
        "webp": [
            (smooth, info), (rough, {"lossless": True}), (clear, {"quality": 60}), (smooth, frames),
            (clear, {"lossless": True, **info}),
        ],
        "gif": [
            (smooth, {}), (rough, {"interlace": 1}), (smooth, frames), (clear, {}), (smooth.convert("L"), {}),
        ],
        "tiff": [
            (smooth, info), (rough, {"compression": "tiff_lzw"}), (smooth, {"compression": "jpeg"}),
            (deep, {}),
            (smooth, {"compression": "tiff_adobe_deflate", **info}), (smooth.convert("CMYK"), {}),
            (smooth.convert("1"), {"compression": "group4"}), (clear, {"compression": "packbits"}),
            (smooth.convert("L"), {"big_tiff": True}), (smooth, frames), (smooth.convert("P"), {}),
        ],
    }  # fmt: skip
    if format_ == "bmp":
        plain = tuple(saved(smooth.convert(mode), "BMP") for mode in ("1", "L", "P", "RGB", "RGBA"))
        return plain + tuple(painted(seed, bits)[0] for seed in (6, 10, 30) for bits in (4, 8))
    return tuple(saved(image, format_.upper(), **options) for image, options in made[format_])


def _noise(height: int, width: int) -> Pixels:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def mutant(number: int) -> bytes:
    """Return the damaged file of this number. The formats take turns."""
    random_ = random.Random(number)
    format_ = FORMATS[number % len(FORMATS)]
    data = bytearray(random_.choice(seeds(format_)))
    for _ in range(random_.choice((1, 1, 1, 2, 4))):
        random_.choice(_DAMAGES)(data, random_)
    if format_ == "png" and random_.random() < 0.6:
        _mend_checksums(data)  # else decoders see only the first damage
    return bytes(data)


def _flip_bits(data: bytearray, random_: random.Random) -> None:
    for _ in range(random_.choice((1, 1, 3, 10, 100))):
        if data:
            data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)


def _damage_head(data: bytearray, random_: random.Random) -> None:
    for _ in range(random_.choice((1, 2, 4))):
        if data:
            data[random_.randrange(min(len(data), 700))] = random_.choice(
                (0, 1, 0x7F, 0x80, 0xFF, random_.randrange(256))
            )


def _truncate(data: bytearray, random_: random.Random) -> None:
    del data[random_.randrange(len(data) + 1) :]


def _splice(data: bytearray, random_: random.Random) -> None:
    """Join the head of one file and the tail of another, mostly of another format."""
    format_ = random_.choice(FORMATS)
    other = random_.choice(seeds(format_))
    cut, start = random_.randrange(len(data) + 1), random_.randrange(len(other))
    data[cut:] = other[start:]


def _overwrite(data: bytearray, random_: random.Random) -> None:
    start = random_.randrange(len(data) + 1)
    length = min(len(data) - start, random_.choice((2, 4, 8, 64, 1000)))
    data[start : start + length] = bytes([random_.choice((0, 0xFF, 0x20))]) * length


def _remove(data: bytearray, random_: random.Random) -> None:
    start = random_.randrange(len(data) + 1)
    del data[start : start + random_.choice((1, 2, 16, 300))]


def _repeat(data: bytearray, random_: random.Random) -> None:
    start = random_.randrange(len(data) + 1)
    data[start:start] = data[start : start + random_.choice((1, 12, 200))] * random_.choice((1, 3, 50))


_DAMAGES = (_flip_bits, _flip_bits, _damage_head, _truncate, _splice, _overwrite, _remove, _repeat)


def _mend_checksums(data: bytearray) -> None:
    for found in list(_CHUNK.finditer(bytes(data))):
        length = int.from_bytes(data[found.start() - 4 : found.start()], "big")
        end = found.end() + length
        if end + 4 <= len(data):
            data[end : end + 4] = zlib.crc32(data[found.start() : end]).to_bytes(4, "big")


def main(first: int, end: int) -> None:
    """Convert mutants, each under one of several configurations."""
    from shardmill.beam_jobs.config import FilterConfig, ImageConfig
    from shardmill.beam_jobs.encode.block_task import convert
    from shardmill.infra.codecs import ImageRejected
    from shardmill.infra.codecs.prepare import LIBRARY_FAULTS

    faulthandler.enable()
    limits = {"size": 48, "max_pixels": 4_000_000}
    configurations = [
        ImageConfig.model_validate(limits | more)
        for more in (
            {}, {"allow_truncated": True}, {"channels": 1}, {"passthrough": True, "resize": "none"},
            {"encoding": "webp", "allow_truncated": True},
            {"encoding": "png", "passthrough": True, "resize": "none"},
        )
    ]  # fmt: skip
    for number in range(first, end):
        print(number, end=" ", flush=True)
        signal.alarm(SECONDS_AN_IMAGE)
        try:
            stored = convert(mutant(number), configurations[number % len(configurations)], FilterConfig())
            said = "stored" if stored.image else "EMPTY"
        except ImageRejected as rejected:
            said = rejected.reason if rejected.message.strip() else "SILENT"
        except LIBRARY_FAULTS as error:
            said = f"unprocessable {type(error).__name__} {error}"
        print(said, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
