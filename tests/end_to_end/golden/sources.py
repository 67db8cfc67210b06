"""The made folders of images, each a mapping of path to content, and the way they are written to disk.

They hold no input that Shardmill is known to treat wrongly, so mending such a defect leaves them unchanged.
"""

from __future__ import annotations

import functools
import hashlib
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

from PIL import Image

from tests.end_to_end.golden.pictures import animated, deep_png, image, jpeg, picture, profiled, saved, turned

Files = Mapping[str, bytes]

_FIRST_MTIME_SECONDS = 1_600_000_000
_MTIME_RANGE_SECONDS = 100_000_000

# Height and width (pixels): above and below what is stored, even and odd, wide and tall.
_SIZES = ((300, 400), (533, 400), (256, 256), (257, 301), (64, 48), (90, 301))


def write_folder(root: Path, files: Files) -> None:
    """Make ``root`` hold exactly these files, each with a modification time that follows from its content."""
    for old in sorted(root.rglob("*")):
        if old.is_file() and old.relative_to(root).as_posix() not in files:
            old.unlink()
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        seconds = _FIRST_MTIME_SECONDS + zlib.crc32(data) % _MTIME_RANGE_SECONDS
        os.utime(path, ns=(seconds * 10**9, seconds * 10**9))


def digest_of_files(files: Files) -> str:
    """Digest of the names and contents."""
    listed = [f"{name} {hashlib.sha256(files[name]).hexdigest()}" for name in sorted(files)]
    return hashlib.sha256("\n".join(listed).encode()).hexdigest()[:16]


@functools.cache
def mixed() -> Files:
    """Three classes without splits: all formats, duplicates, near duplicates and broken files."""
    return {**_plain(), **_jpegs(), **_pngs(), **_others(), **_alike(), **_unusable()}


def _plain() -> Files:
    files = {}
    for start, label in ((100, "cat"), (200, "dog"), (300, "owl")):
        for number, (height, width) in enumerate(_SIZES):
            files[f"{label}/p{number // 2}-{number}.jpg"] = jpeg(start + number, height, width)
    return files


def _jpegs() -> Files:
    kinds = {
        "444": jpeg(1, subsampling="444"),
        "422": jpeg(2, subsampling="422"),
        "440": jpeg(3, subsampling="440"),
        "grey": jpeg(4, subsampling="Gray"),
        "odd size": jpeg(5, 97, 131),
        "tiny": jpeg(6, 7, 9),
        "tall": jpeg(7, 620, 60),
        "progressive": saved(image(8), "JPEG", progressive=True),
        "restarts": saved(image(9), "JPEG", restart_marker_blocks=4),
        "cmyk": saved(image(10, "CMYK"), "JPEG"),
        "profile": profiled(11, "JPEG"),
        "blank": saved(Image.new("RGB", (80, 60), (120, 130, 140)), "JPEG"),
    }
    exif = {f"exif {number}": turned(20 + number, number) for number in range(1, 9)}
    return {f"cat/{name}.jpg": data for name, data in (kinds | exif).items()}


def _pngs() -> Files:
    kinds = {
        "rgb": saved(image(30), "PNG"),
        "grey": saved(image(31, "L"), "PNG"),
        "bits": saved(image(32, "1"), "PNG"),
        "palette": saved(image(33, "P"), "PNG"),
        "palette with alpha": saved(image(34).quantize(16), "PNG", transparency=3),
        "alpha": saved(image(35, "RGBA"), "PNG"),
        "grey with alpha": saved(image(36, "LA"), "PNG"),
        "grey 16": saved(image(37, "I;16"), "PNG"),
        "rgb 16": deep_png(38),
        "profile": profiled(39, "PNG"),
        "exif 6": turned(40, 6, "PNG"),
    }
    return {f"dog/{name}.png": data for name, data in kinds.items()}


def _others() -> Files:
    kinds = {
        "still.gif": saved(image(50, "P"), "GIF"),
        "animated.gif": animated(51, "GIF"),
        "lossy.webp": saved(image(53), "WEBP", quality=80),
        "lossless.webp": saved(image(54), "WEBP", lossless=True),
        "alpha.webp": saved(image(55, "RGBA"), "WEBP", lossless=True),
        "animated.webp": animated(56, "WEBP"),
        "rgb.bmp": saved(image(58), "BMP"),
        "palette.bmp": saved(image(59, "P"), "BMP"),
        "rgb.tif": saved(image(60), "TIFF"),
        "lzw.tif": saved(image(61), "TIFF", compression="tiff_lzw"),
        "grey 16.tif": saved(image(62, "I;16"), "TIFF"),
        "cmyk.tif": saved(image(63, "CMYK"), "TIFF"),
        "exif 8.webp": turned(64, 8, "WEBP"),
        "été.jpg": jpeg(65),
    }
    return {f"owl/{name}": data for name, data in kinds.items()}


def _alike() -> Files:
    smaller = Image.fromarray(picture(71, 180, 240)).resize((150, 112), Image.Resampling.BOX)
    return {
        "cat/same.jpg": jpeg(70),
        "cat/the same.jpg": jpeg(70),
        "owl/same.jpg": jpeg(70),
        "dog/near.jpg": jpeg(71, 180, 240),
        "dog/near, worse.jpg": jpeg(71, 180, 240, quality=40),
        "owl/near, smaller.png": saved(smaller, "PNG"),
    }


def _unusable() -> Files:
    return {
        "cat/truncated.jpg": jpeg(80)[:-400],
        "dog/text.jpg": b"this is no image\n",
        "owl/empty.png": b"",
        "owl/notes.txt": b"ignored\n",
        "stray.jpg": jpeg(81),
    }


@functools.cache
def given() -> Files:
    """Two classes with splits. Duplicates, near duplicates and keys (p0, p1, ...) lie across the splits."""
    files = {}
    for start, split, count in ((400, "train", 8), (420, "validation", 3), (440, "test", 3)):
        for number in range(count):
            label = ("ant", "bee")[number % 2]
            files[f"{split}/{label}/p{start // 20 + number}-{number}.jpg"] = jpeg(start + number)
    return files | {
        "train/ant/p90-same.jpg": jpeg(460),
        "test/ant/p91-same.jpg": jpeg(460),
        "train/bee/p92-near.jpg": jpeg(461),
        "validation/bee/p93-near.jpg": jpeg(461, quality=50),
        "train/ant/p94-key.jpg": jpeg(462),
        "test/ant/p94-key.jpg": jpeg(463),
    }


@functools.cache
def first() -> Files:
    """A small folder that changes twice afterwards."""
    files = {
        f"{label}/{number}.jpg": jpeg(start + number)
        for start, label, count in ((500, "ant", 14), (520, "bee", 9))
        for number in range(count)
    }
    return files | {"bee/broken.jpg": jpeg(540)[:-400], "bee/copy of ant 2.jpg": files["ant/2.jpg"]}


@functools.cache
def second() -> Files:
    """The first folder with files added, removed, changed, moved and mended, and a new class."""
    files = dict(first())
    del files["ant/0.jpg"], files["bee/1.jpg"]
    return files | {
        "ant/new.jpg": jpeg(541),
        "ant/near 3.jpg": jpeg(503, quality=50),
        "ant/1.jpg": jpeg(542),
        "ant/moved.jpg": files.pop("ant/4.jpg"),
        "ant/bee 5.jpg": files.pop("bee/5.jpg"),
        "bee/broken.jpg": jpeg(540),
        "cow/0.png": saved(image(543), "PNG"),
        "cow/1.png": saved(image(544, "L"), "PNG"),
    }


@functools.cache
def third() -> Files:
    """The second folder with a few files more."""
    return {**second(), "bee/newest.jpg": jpeg(545), "cow/2.png": saved(image(546), "PNG")}
