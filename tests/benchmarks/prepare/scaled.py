"""Compare JPEGs that are decoded scaled with those decoded whole: which comes nearer to Lanczos in float64.

    python -m tests.benchmarks.prepare.scaled [FOLDER] [--photos N]

The table sets from how many pixels for a stored one on JPEGs are decoded scaled (``decoding_scale`` of
shardmill.infra.codecs.jpeg.planes). Each photograph is a mosaic of enlarged ones, so that detail is finest at
one to six pixels. It goes to several sizes, given as samples of a scaled plane to a pixel of the result.
Shown are how often decoding scaled is nearer, and by how much on the average and at worst (dB, luma).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import cv2
import numpy as np
import simplejpeg

from shardmill.infra.codecs import WHITE, Pixels, encode_jpeg
from shardmill.infra.codecs.geometry import Geometry
from shardmill.infra.codecs.jpeg.planes import fit
from shardmill.infra.codecs.jpeg.turbojpeg import decode_planes, read_planar_header
from tests.benchmarks.inputs.photo_folders import PHOTOGRAPHS
from tests.samples.images import references

_ENLARGED = (1.0, 1.7, 2.6, 4.0, 6.0)
_SAMPLES = (1.5, 2.0, 2.5, 2.75, 2.9, 3.0, 3.5, 4.0)
_SCALES = (2, 4, 8)


def mosaic(files: list[Path], number: int) -> Pixels:
    """Return a photograph put together from enlarged ones, with grain: uint8 [H, W, 3]."""
    generator, times = np.random.default_rng(number), _ENLARGED[number % len(_ENLARGED)]
    whole = np.empty((1799 + number % 7, 2401 + number % 5, 3), np.uint8)
    rows, columns = round(533 * times), round(400 * times)
    for top in range(0, whole.shape[0], rows):
        for left in range(0, whole.shape[1], columns):
            small = simplejpeg.decode_jpeg(files[int(generator.integers(len(files)))].read_bytes())
            tile = cv2.resize(small, (columns, rows), interpolation=cv2.INTER_LANCZOS4)
            grain = generator.normal(0, 2.5, (rows, columns, 1)) if times > 1 else 0
            part = whole[top : top + rows, left : left + columns]
            part[:] = np.clip(tile + grain, 0, 255)[: part.shape[0], : part.shape[1]]
    return whole


def gains(data: bytes) -> dict[tuple[float, int], float]:
    """Return how much nearer the scaled picture comes (dB), by samples for a pixel and scale."""
    header = read_planar_header(data)
    assert header is not None
    by_scale = {scale: decode_planes(data, header, scale) for scale in (1, *_SCALES)}
    luma = simplejpeg.decode_jpeg(data, colorspace="GRAY")[:, :, 0]
    found = {}
    for scale in _SCALES:
        for samples in _SAMPLES:
            size = round(header.height / (scale * samples)), round(header.width / (scale * samples))
            exact = references.lanczos(luma, *size)
            to = Geometry((0, 0, header.height, header.width), size, size, (0, 0))
            near = []
            for planes in (by_scale[scale], by_scale[1]):
                assert planes is not None
                near.append(references.psnr(fit(planes, to, 1, WHITE).y, exact))
            found[samples, scale] = near[0] - near[1]
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=PHOTOGRAPHS)
    parser.add_argument("--photos", type=int, default=30)
    told = parser.parse_args()
    files = sorted(told.folder.rglob("*.jpg"))
    rows = [gains(encode_jpeg(mosaic(files, number), 90)) for number in range(told.photos)]
    print(f"{'samples':>8}" + "".join(f"{f'scale {scale}: nearer, mean, worst':>34}" for scale in _SCALES))
    for samples in _SAMPLES:
        cells = [np.array([row[samples, scale] for row in rows]) for scale in _SCALES]
        words = [f"{np.mean(cell > 0):.0%} {cell.mean():+.2f} {cell.min():+.2f}" for cell in cells]
        print(f"{samples:>8}" + "".join(f"{word:>34}" for word in words))


if __name__ == "__main__":
    main()
