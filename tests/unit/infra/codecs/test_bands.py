"""Pictures of several bands: the pixels of the file, stored images of the same bytes, and little memory."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tifffile
from PIL import Image

from shardmill.infra.codecs import Pixels, decode
from shardmill.infra.codecs.formats import ImageRejected, apply_orientation, band_rows
from shardmill.infra.codecs.geometry import geometry
from shardmill.infra.codecs.measures import thumbnail
from shardmill.infra.codecs.prepare import fit_pixels, luma, prepare_image
from shardmill.infra.preparation import Preparation

HEIGHT, WIDTH = 1700, 901
WHITE = (255, 255, 255)
MIB = 1 << 20


@cache
def photograph() -> Pixels:
    """A smooth picture with a little noise, so that all steps of its shades occur."""
    noise = np.random.default_rng(1).integers(0, 24, (HEIGHT, WIDTH, 3))
    ramp = np.add.outer(np.arange(HEIGHT) / 12, np.arange(WIDTH) / 11)[:, :, np.newaxis]
    return np.asarray((ramp + noise) % 256, np.uint8)


def tiff(samples: npt.NDArray[Any], **options: Any) -> bytes:
    sink = io.BytesIO()
    tifffile.imwrite(sink, samples, **{"photometric": "rgb", **options})
    return sink.getvalue()


def saved(image: Image.Image, form: str, **options: Any) -> bytes:
    sink = io.BytesIO()
    image.save(sink, form, **options)
    return sink.getvalue()


def on_white(colors: Pixels, opacity: Pixels) -> Pixels:
    behind = Image.new("RGB", (WIDTH, HEIGHT), WHITE)
    behind.paste(Image.fromarray(colors), mask=Image.fromarray(opacity))
    return np.asarray(behind)


def late_opacity() -> Pixels:
    """Opaque but for the last rows, which the first band does not have."""
    opacity = np.full((HEIGHT, WIDTH), 255, np.uint8)
    opacity[-100:] = np.arange(WIDTH) % 256
    return opacity


def in_colors(grey: Pixels) -> Pixels:
    return np.repeat(grey[:, :, np.newaxis], 3, axis=2)


def files() -> dict[str, Callable[[], tuple[bytes, Pixels]]]:
    """The bytes of a file and the RGB that it shows before it is turned, by name."""
    photo, grey = photograph(), photograph()[:, :, 0]
    planes = np.ascontiguousarray(np.moveaxis(photo, 2, 0))
    opacity = late_opacity()
    palette = np.random.default_rng(2).integers(0, 256, (256, 3)).astype(np.uint8)
    cut = {"rowsperstrip": 64}
    transparent = np.dstack([photo, opacity])
    paletted = Image.fromarray(grey, "P")
    paletted.putpalette(palette.tobytes())
    turned = Image.Exif()
    turned[274] = 6
    return {
        "tiff in tiles": lambda: (tiff(photo, tile=(128, 256), compression="zlib"), photo),
        "tiff in strips": lambda: (tiff(photo, compression="lzw", predictor=True, **cut), photo),
        "tiff in strips of one row": lambda: (tiff(photo, rowsperstrip=1), photo),
        "tiff in one strip": lambda: (tiff(photo, rowsperstrip=HEIGHT), photo),
        "tiff in one compressed strip": lambda: (
            tiff(photo, rowsperstrip=HEIGHT, compression="packbits"),
            photo,
        ),
        "tiff in planes": lambda: (tiff(planes, planarconfig="separate", compression="zstd", **cut), photo),
        "tiff in planes of one strip": lambda: (
            tiff(planes, planarconfig="separate", rowsperstrip=HEIGHT),
            photo,
        ),
        "tiff of 16 bits": lambda: (tiff(photo.astype(np.uint16) << 8 | 7, byteorder=">", **cut), photo),
        "tiff of floats": lambda: (
            tiff((grey / np.float32(255)), photometric="minisblack", **cut),
            in_colors(grey),
        ),
        "tiff with late opacity": lambda: (
            tiff(transparent, extrasamples=["unassalpha"], compression="zlib", **cut),
            on_white(photo, opacity),
        ),
        "tiff with a palette": lambda: (
            tiff(grey, photometric="palette", colormap=palette.T.astype(np.uint16) << 8, **cut),
            palette[grey],
        ),
        "tiff that is turned": lambda: (tiff(photo, extratags=[(274, 3, 1, 6, True)], **cut), photo),
        "png": lambda: (saved(Image.fromarray(photo), "PNG"), photo),
        "png with late opacity": lambda: (
            saved(Image.fromarray(transparent, "RGBA"), "PNG"),
            on_white(photo, opacity),
        ),
        "png with a palette": lambda: (saved(paletted, "PNG"), palette[grey]),
        "png of 16 bits": lambda: (
            saved(Image.fromarray(grey.astype(np.uint16) << 8 | 9), "PNG"),
            in_colors(grey),
        ),
        "png that is turned": lambda: (saved(Image.fromarray(photo), "PNG", exif=turned), photo),
        "webp": lambda: (saved(Image.fromarray(photo), "WEBP", lossless=True, quality=0, method=0), photo),
        "bmp": lambda: (saved(Image.fromarray(photo), "BMP"), photo),
        "gif": lambda: (saved(paletted, "GIF"), palette[grey]),
    }


FILES = files()


@cache
def case(name: str) -> tuple[bytes, Pixels]:
    """The file, and what it shows upright."""
    data, shown = FILES[name]()
    return data, apply_orientation(shown, 6 if "turned" in name else 1)


def test_the_pictures_have_several_bands() -> None:
    assert band_rows(WIDTH) < HEIGHT


@pytest.mark.parametrize("name", FILES)
def test_pixels_are_those_of_the_file(name: str) -> None:
    data, shown = case(name)
    decoded = decode(data)
    assert np.array_equal(decoded.pixels, shown)
    assert decoded.source.had_alpha == ("opacity" in name)


@pytest.mark.parametrize("resize", ["short", "crop", "pad", "none"])
@pytest.mark.parametrize("name", FILES)
def test_stored_pixels_are_those_of_the_whole_picture(name: str, resize: str) -> None:
    data, shown = case(name)
    how = Preparation.model_validate({"resize": resize, "size": 170, "encoding": "raw"})
    stored = prepare_image(data, how)
    to = geometry(*shown.shape[:2], how.sizing)
    pixels = fit_pixels(shown, to, "area", WHITE)
    assert stored.image == pixels.tobytes()
    seen = luma(pixels if to.keeps_all_of(*shown.shape[:2]) else shown)
    assert np.array_equal(stored.measures.thumbnails[0], thumbnail(seen))
    assert stored.upright == shown.shape[:2]


@pytest.mark.parametrize("size", [17, 170, 1700, 53, 900])
def test_every_ratio(size: int) -> None:
    data, shown = case("tiff in tiles")
    how = Preparation.model_validate({"resize": "long", "size": size, "encoding": "raw"})
    to = geometry(HEIGHT, WIDTH, how.sizing)
    assert prepare_image(data, how).image == fit_pixels(shown, to, "area", WHITE).tobytes()


def test_a_file_that_ends_early_is_refused_or_salvaged() -> None:
    whole = tiff(photograph(), rowsperstrip=64, compression="zlib")
    cut, how = whole[: len(whole) * 3 // 4], Preparation(encoding="raw")
    with pytest.raises(ImageRejected) as rejected:
        prepare_image(cut, how)
    assert rejected.value.reason == "truncated"
    assert prepare_image(cut, how.model_copy(update={"allow_truncated": True})).source.salvaged


def test_damage_is_named_before_a_filter_that_leaves_the_image_out() -> None:
    def refuse(height: int, width: int) -> None:
        raise ImageRejected("too_small", f"{height}×{width}")

    whole = tiff(photograph(), rowsperstrip=64, compression="zlib")
    for data, reason in ((whole, "too_small"), (whole[: len(whole) * 3 // 4], "truncated")):
        with pytest.raises(ImageRejected) as rejected:
            prepare_image(data, Preparation(), refuse)
        assert rejected.value.reason == reason


# Prints how much a process grows while it prepares an image of 24 megapixels, and what was foreseen (bytes).
MEASURE = """
import io, sys
import numpy as np, tifffile
from PIL import Image
from shardmill.infra.codecs.memory import decoding_bytes
from shardmill.infra.codecs.prepare import prepare_image
from shardmill.infra.preparation import Preparation

def now(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(key))

def written(shape, form):
    sink, pixels = io.BytesIO(), np.zeros(shape, np.uint8)
    if form == "tiff":
        tifffile.imwrite(sink, pixels, tile=(256, 256), compression="zlib", photometric="rgb")
    else:
        Image.fromarray(pixels).save(sink, form, compress_level=1)
    return sink.getvalue()

small, large = (written(shape, sys.argv[1]) for shape in ((300, 300, 3), (4000, 6000, 3)))
prepare_image(small, Preparation())
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak begins again
before = now("VmRSS")
prepare_image(large, Preparation())
print(now("VmHWM") - before, decoding_bytes(large, Preparation()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for the peak of memory")
@pytest.mark.parametrize(("form", "most_of_pixel"), [("tiff", 1.5), ("png", 5.5)])
def test_a_large_picture_never_takes_memory_for_all_of_its_converted_pixels(
    form: str, most_of_pixel: float
) -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE, form], capture_output=True, text=True, check=True)
    grown, foreseen = map(int, done.stdout.split())
    assert grown < most_of_pixel * 24e6 + 8 * MIB
    assert grown < foreseen
