"""How much memory does it take to prepare a large image? Its peak and processor time, by format.

    python -m tests.benchmarks.prepare.large_memory [--megapixels 12,48] [--work DIR] [FILE ...]

Each picture is prepared in a process of its own, with the default settings, after a small one of its format:
libraries do not count. "peak" is what the process grew by, with the file, and "foreseen" what it reserves of
the machine's budget before. Pillow and tifffile write the pictures: an upscaled photograph with noise. FILEs,
as those of cameras, are measured too.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import tifffile
from PIL import Image

from tests.benchmarks.inputs.photo_folders import make_small_photographs

_SIZES = {12: (3024, 4032), 48: (6048, 8064)}  # height and width by megapixels

_MEASURE = """
import sys, time
from pathlib import Path
from shardmill.infra.codecs.memory import decoding_bytes
from shardmill.infra.codecs.prepare import prepare_image
from shardmill.infra.preparation import Preparation

def now(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(key))

small, path = map(Path, sys.argv[1:])
how = Preparation()
prepare_image(small.read_bytes(), how)
Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
before = now("VmRSS")
data = path.read_bytes()
began = time.process_time()
height, width = prepare_image(data, how).upright
seconds = time.process_time() - began
print(height * width, len(data), now("VmHWM") - before, decoding_bytes(data, how), seconds)
"""

Pixels = npt.NDArray[np.uint8]


def _pillow(form: str, **options: object) -> Callable[[Pixels], bytes]:
    def write(pixels: Pixels) -> bytes:
        sink = io.BytesIO()
        Image.fromarray(pixels).save(sink, form, **options)
        return sink.getvalue()

    return write


def _tiff(**options: object) -> Callable[[Pixels], bytes]:
    def write(pixels: Pixels) -> bytes:
        sink = io.BytesIO()
        samples = pixels.astype(np.uint16) * 257 if options.get("resolution") else pixels
        tifffile.imwrite(sink, samples, photometric="rgb", **options)
        return sink.getvalue()

    return write


_FORMATS: dict[str, Callable[[Pixels], bytes]] = {
    "JPEG": _pillow("JPEG", quality=92),
    "TIFF in tiles, zlib": _tiff(tile=(256, 256), compression="zlib"),
    "TIFF in strips, LZW": _tiff(rowsperstrip=64, compression="lzw", predictor=True),
    "TIFF in one strip": _tiff(rowsperstrip=1 << 20),
    "TIFF in tiles, 16 bits": _tiff(tile=(256, 256), compression="zlib", resolution=(72, 72)),
    "PNG": _pillow("PNG", compress_level=1),
    "BMP": _pillow("BMP"),
    "AVIF": _pillow("AVIF", quality=80, speed=10),
    "WebP": _pillow("WEBP", quality=80, method=3),
    "JPEG 2000": _pillow("JPEG2000", irreversible=True, quality_mode="rates", quality_layers=[10]),
}


def _photograph(work: Path, size: tuple[int, int]) -> Pixels:
    """An upscaled photograph, with the noise of a sensor, uint8 [H, W, 3]."""
    folder = make_small_photographs(work / "small", 0, 1)
    source = np.asarray(Image.open(next(folder.rglob("*.jpg"))).convert("RGB"))
    large: Pixels = np.asarray(cv2.resize(source, size[::-1], interpolation=cv2.INTER_CUBIC), np.uint8)
    noise = np.random.default_rng(0).integers(-3, 4, size, dtype=np.int8)
    for row in range(0, size[0], 256):
        part = large[row : row + 256]
        part[:] = np.clip(part.astype(np.int16) + noise[row : row + 256, :, np.newaxis], 0, 255)
    return large


def _show(name: str, small: Path, path: Path) -> None:
    argv = [sys.executable, "-c", _MEASURE, str(small), str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name:28} {done.stderr.strip().splitlines()[-1][:100]}", flush=True)
        return
    *numbers, seconds = done.stdout.split()
    pixels, size, peak, foreseen = map(int, numbers)
    mebibytes = "".join(f"{part / 2**20:>12.0f}" for part in (size, peak, foreseen))
    print(
        f"{name:28}{pixels / 1e6:>6.1f}{mebibytes}{(peak - size) / pixels:>10.1f}{float(seconds):>8.2f}",
        flush=True,
    )


def main() -> None:
    """Write the pictures and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--megapixels", default="12,48", help="of the pictures: 12, 48 or both")
    parser.add_argument("--work", type=Path, help="folder for pictures (default: a temporary)")
    told = parser.parse_args()
    heads = ("file MiB", "peak MiB", "foreseen MiB")
    print(
        f"{'format':28}{'MP':>6}" + "".join(f"{head:>12}" for head in heads) + f"{'bytes/px':>10}{'CPU s':>8}"
    )
    with tempfile.TemporaryDirectory(dir=told.work, prefix="large-") as work:
        path, small = Path(work, "large"), Path(work, "small-picture")
        tiny = np.full((300, 300, 3), 90, np.uint8)
        for megapixels in map(int, told.megapixels.split(",")):
            pixels = _photograph(Path(work), _SIZES[megapixels])
            for name, write in _FORMATS.items():
                small.write_bytes(write(tiny))
                path.write_bytes(write(pixels))
                _show(name, small, path)
        for file in told.files:
            small.write_bytes(_FORMATS["PNG"](tiny))
            _show(file.name, small, file)


if __name__ == "__main__":
    main()
