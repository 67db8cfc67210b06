"""Shared code of the peers: the files with their labels, and the conversion of one photograph.

Runs in the peers' environment as well as in Shardmill's own.
"""

from __future__ import annotations

import argparse
from pathlib import Path

SHORT_SIDE = 256
QUALITY = 90
CODECS = ("shardmill", "opencv")

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
    return _with_opencv(data) if codec == "opencv" else _as_shardmill(data)


def _as_shardmill(data: bytes) -> bytes:
    """Through planes of luma and chroma as ``prepare`` does; through pixels where ``prepare`` would."""
    from shardmill.infra.codecs import WHITE, decode, encode_jpeg, resize_short_side
    from shardmill.infra.codecs.geometry import geometry
    from shardmill.infra.codecs.jpeg import turbojpeg
    from shardmill.infra.codecs.jpeg.planes import fit
    from shardmill.infra.codecs.jpeg.turbojpeg import library
    from shardmill.infra.preparation import Sizing

    header = turbojpeg.read_planar_header(data) if library() else None
    if header is None:
        return encode_jpeg(resize_short_side(decode(data).pixels, SHORT_SIDE), QUALITY)
    planes = turbojpeg.decode_planes(data, header)
    if planes is None:
        return encode_jpeg(resize_short_side(decode(data).pixels, SHORT_SIDE), QUALITY)
    to = geometry(header.height, header.width, Sizing("short", SHORT_SIDE, SHORT_SIDE))
    return turbojpeg.encode_planes(fit(planes, to, 3, WHITE), QUALITY)


def _with_opencv(data: bytes) -> bytes:
    import cv2
    import numpy as np

    cv2.setNumThreads(1)
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    height, width = pixels.shape[:2]
    scale = SHORT_SIDE / min(height, width)
    if scale < 1:
        size = round(width * scale), round(height * scale)
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    _, encoded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    return bytes(encoded.tobytes())
