"""Shared code of the peers: the files with their labels, and the conversion of one photograph.

Runs in the peers' environment as well as in Shardmill's own.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

SHORT_SIDE = 256
QUALITY = 90
CODECS = ("shardmill", "opencv", "opencv-reduced", "pillow-draft")

Photograph = tuple[str, int]  # path, label


def arguments(peer: str) -> argparse.Namespace:
    """source, out, shards, workers, codec: what every peer is told."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.benchmarks.prepare.peers.{peer}")
    parser.add_argument("source", type=Path, help="a folder of JPEG files in a subfolder a class")
    parser.add_argument("out", type=Path, help="folder for what the peer writes")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--codec", choices=CODECS, default=CODECS[0])
    return parser.parse_args()


def photographs(source: Path) -> list[Photograph]:
    """Every photograph, sorted by path."""
    folders = sorted(path for path in source.iterdir() if path.is_dir())
    return [
        (str(path), label) for label, folder in enumerate(folders) for path in sorted(folder.glob("*.jpg"))
    ]


def key_of(path: str) -> str:
    """A name that no other photograph has: class and file."""
    found = Path(path)
    return f"{found.parent.name}-{found.stem}"


def convert(path: str, codec: str) -> bytes:
    """A photograph as the shards hold it: short side 256 by area averaging, JPEG of quality 90, 4:2:0."""
    data = Path(path).read_bytes()
    if codec == "pillow-draft":
        return _with_pillow(data)
    return _as_shardmill(data) if codec == "shardmill" else _with_opencv(data, reduced=codec != "opencv")


def _as_shardmill(data: bytes) -> bytes:
    """Through planes of luma and chroma as ``prepare`` does; through pixels where ``prepare`` would."""
    from shardmill.infra.codecs import WHITE, decode, encode_jpeg, resize_short_side
    from shardmill.infra.codecs.geometry import geometry
    from shardmill.infra.codecs.jpeg import turbojpeg
    from shardmill.infra.codecs.jpeg.planes import decoding_scale, fit
    from shardmill.infra.codecs.jpeg.turbojpeg import library
    from shardmill.infra.preparation import Sizing

    header = turbojpeg.read_planar_header(data) if library() else None
    if header is None:
        return encode_jpeg(resize_short_side(decode(data).pixels, SHORT_SIDE), QUALITY)
    to = geometry(header.height, header.width, Sizing("short", SHORT_SIDE, SHORT_SIDE))
    planes = turbojpeg.decode_planes(data, header, decoding_scale(to, header.sample, 1, 3))
    if planes is None:
        return encode_jpeg(resize_short_side(decode(data).pixels, SHORT_SIDE), QUALITY)
    return turbojpeg.encode_planes(fit(planes, to, 3, WHITE), QUALITY)


def _with_pillow(data: bytes) -> bytes:
    """Decode at the scale that leaves twice the size or more, as ``Image.thumbnail`` does."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as opened:
        scale = min(1, SHORT_SIDE / min(opened.size))
        size = round(opened.width * scale), round(opened.height * scale)
        opened.draft("RGB", (2 * size[0], 2 * size[1]))
        small = opened.convert("RGB").resize(size, Image.Resampling.BICUBIC, reducing_gap=2.0)
    file = io.BytesIO()
    small.save(file, "JPEG", quality=QUALITY)
    return file.getvalue()


def _with_opencv(data: bytes, *, reduced: bool) -> bytes:
    """Decode whole, or at the scale that leaves twice the size or more."""
    import cv2
    import numpy as np
    from PIL import Image

    cv2.setNumThreads(1)
    flag = cv2.IMREAD_COLOR
    if reduced:
        with Image.open(io.BytesIO(data)) as opened:
            ratio = min(opened.size) / (2 * SHORT_SIDE)
        modes = {8: cv2.IMREAD_REDUCED_COLOR_8, 4: cv2.IMREAD_REDUCED_COLOR_4, 2: cv2.IMREAD_REDUCED_COLOR_2}
        flag = next((mode for times, mode in modes.items() if ratio >= times), flag)
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flag)
    height, width = pixels.shape[:2]
    scale = SHORT_SIDE / min(height, width)
    if scale < 1:
        size = round(width * scale), round(height * scale)
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    _, encoded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    return bytes(encoded.tobytes())
