"""Measure how many altered copies are found as near-duplicates, and how many other photographs are.

    python -m tests.benchmarks.prepare.alike IMAGES [--copies 300] [--sheet pairs.png]

IMAGES is a folder of photographs. Of some of them copies of each kind below are made. For each kind the table
has the share of copies that come into one group with their original (*found*), and how many of the other
photographs came into these groups (*wrong*), when all photographs and the copies are prepared together with
the default settings.

The last lines name the pairs that are grouped among the photographs alone. They may be true near-duplicates:
``--sheet`` writes a picture of them to look at.

The first lines say what near-duplicates cost: CPU time of a photograph for its look, and for the search among
all of them, as a share of the CPU time of converting the photographs and of both. Prepare does more than that
(it reads, hashes and writes), so the share of prepare is smaller. ``--copies 0`` measures this alone.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image, ImageEnhance

from shardmill.beam_jobs.config import FilterConfig, GroupsConfig, ImageConfig
from shardmill.beam_jobs.encode.block_task import convert
from shardmill.beam_jobs.plan.similarity.near_duplicates import NearDuplicates, find_near_duplicates
from shardmill.infra.codecs import ImageRejected
from shardmill.infra.codecs.measures import looks

Picture = Image.Image
Change = Callable[[Picture], Picture]
ENDINGS = {".jpg", ".jpeg", ".png", ".webp"}
TURN = Image.Transpose
BLOCK = 128  # images, as runner.block_images


def cut(left: float, top: float, right: float, bottom: float) -> Change:
    """Cut off so much of the sides, in parts of width and height."""

    def changed(image: Picture) -> Picture:
        width, height = image.size
        box = (left * width, top * height, width - right * width, height - bottom * height)
        return image.crop(tuple(map(round, box)))  # type: ignore[arg-type]

    return changed


def cut_anywhere(part: float, seed: int) -> Change:
    """Cut out a window with so much of width and height, at a random place."""
    rng = random.Random(seed)

    def changed(image: Picture) -> Picture:
        across, down = rng.random() * (1 - part), rng.random() * (1 - part)
        return cut(across, down, 1 - part - across, 1 - part - down)(image)

    return changed


def border(across: float, down: float, colour: str) -> Change:
    """Put a border around an image: left and right, above and below, in parts of width and height."""

    def changed(image: Picture) -> Picture:
        width, height = image.size
        x, y = max(1, round(across * width)), round(down * height)
        framed = Image.new("RGB", (width + 2 * x, height + 2 * y), colour)
        framed.paste(image, (x, y))
        return framed

    return changed


def scaled(ratio: float) -> Change:
    """Scale an image."""
    return lambda image: image.resize((round(image.width * ratio), round(image.height * ratio)))


def turned(way: Image.Transpose) -> Change:
    """Mirror or turn an image."""
    return lambda image: image.transpose(way)


def darker(ratio: float) -> Change:
    """Multiply all samples."""
    return lambda image: ImageEnhance.Brightness(image).enhance(ratio)


def then(*changes: Change) -> Change:
    """Make one change after the other."""

    def changed(image: Picture) -> Picture:
        for change in changes:
            image = change(image)
        return image

    return changed


# Kind of copy -> what is done, and the quality of its JPEG.
KINDS: dict[str, tuple[Change, int]] = {
    "recompressed, quality 30": (then(), 30),
    "recompressed, quality 10": (then(), 10),
    "half the size": (scaled(0.5), 88),
    "1.5 times the size": (scaled(1.5), 88),
    "darker, × 0.7": (darker(0.7), 88),
    "brighter, × 1.2": (darker(1.2), 88),
    "more contrast, × 1.3": (lambda image: ImageEnhance.Contrast(image).enhance(1.3), 88),
    "grey": (lambda image: image.convert("L").convert("RGB"), 88),
    "mirrored": (turned(TURN.FLIP_LEFT_RIGHT), 88),
    "upside down": (turned(TURN.FLIP_TOP_BOTTOM), 88),
    "turned by 90°": (turned(TURN.ROTATE_90), 88),
    "turned by 180°": (turned(TURN.ROTATE_180), 88),
    "turned by 270°": (turned(TURN.ROTATE_270), 88),
    "transposed": (turned(TURN.TRANSPOSE), 88),
    "transversed": (turned(TURN.TRANSVERSE), 88),
    "mirrored, half the size, quality 40": (then(turned(TURN.FLIP_LEFT_RIGHT), scaled(0.5)), 40),
    "turned by 90°, darker": (then(turned(TURN.ROTATE_90), darker(0.7)), 88),
    "cut by 2.5 % at each side": (cut(0.025, 0.025, 0.025, 0.025), 88),
    "cut by 5 % at each side": (cut(0.05, 0.05, 0.05, 0.05), 88),
    "cut by 5 % at the left": (cut(0.05, 0, 0, 0), 88),
    "cut by 5 % at the bottom": (cut(0, 0, 0, 0.05), 88),
    "cut by 5 % at a corner": (cut(0.05, 0.05, 0, 0), 88),
    "95 % of width and height, anywhere": (cut_anywhere(0.95, 1), 88),
    "95 % of the area, anywhere": (cut_anywhere(0.95**0.5, 2), 88),
    "cut by 5 % at each side, mirrored": (
        then(cut(0.05, 0.05, 0.05, 0.05), turned(TURN.FLIP_LEFT_RIGHT)),
        88,
    ),
    "cut by 5 % at each side, darker, quality 40": (then(cut(0.05, 0.05, 0.05, 0.05), darker(0.7)), 40),
    "cut by 10 % at each side": (cut(0.1, 0.1, 0.1, 0.1), 88),
    "border of 1 %, white": (border(0.01, 0.01, "white"), 88),
    "border of 2 %, black": (border(0.02, 0.02, "black"), 88),
    "border of 5 %, white": (border(0.05, 0.05, "white"), 88),
    "border of 5 %, black": (border(0.05, 0.05, "black"), 88),
    "border of 5 %, red": (border(0.05, 0.05, "#c81e28"), 88),
    "border of 5 %, turned by 90°": (then(border(0.05, 0.05, "white"), turned(TURN.ROTATE_90)), 88),
    "bars of 5 % above and below": (border(0, 0.05, "black"), 88),
    "border of 10 %, white": (border(0.1, 0.1, "white"), 88),
    "turned by 2°": (lambda image: image.rotate(2), 88),
}


@dataclass
class CpuSeconds:
    """CPU time of this process, over all photographs.

    Attributes:
        convert: decoding, scaling and encoding.
        look: computing looks.
        search: comparing them.
    """

    convert: float = 0.0
    look: float = 0.0
    search: float = 0.0

    def in_words(self, count: int) -> str:
        """Return the cost of near-duplicates for each of ``count`` photographs, and its share."""
        near = self.look + self.search
        each = [
            f"{1e6 * seconds / max(1, count):.0f} µs" for seconds in (self.look, self.search, self.convert)
        ]
        return (
            f"CPU time of a photograph: {each[0]} for its look, {each[1]} for the search among {count:,}, "
            f"{each[2]} to convert it; near-duplicates take {near / max(1e-9, self.convert + near):.1%} of it"
        )


def look_of(data: bytes) -> bytes | None:
    """The look of an image, as prepare stores it."""
    return looks_of([data], CpuSeconds())[0]


def looks_of(images: Sequence[bytes], spent: CpuSeconds) -> list[bytes | None]:
    """The looks of a block of images, as prepare computes them; adds their CPU time to ``spent``.

    Raises:
        ImageRejected: one of them cannot be read.
    """
    begun = time.process_time()
    views = [convert(data, ImageConfig(), FilterConfig()).measures.thumbnails for data in images]
    converted = time.process_time()
    found = iter(looks(np.stack([view for views_of_one in views for view in views_of_one])))
    of_each = [[next(found) for _ in views_of_one] for views_of_one in views]
    spent.convert += converted - begun
    spent.look += time.process_time() - converted
    return [b"".join(look for look in some if look) or None for some in of_each]


def copied(image: Picture, change: Change, quality: int) -> bytes:
    """A changed copy as JPEG."""
    file = io.BytesIO()
    change(image).save(file, "JPEG", quality=quality)
    return file.getvalue()


def grouped(found: list[bytes | None]) -> NearDuplicates:
    """The near-duplicates among images."""
    return find_near_duplicates(pa.chunked_array([pa.array(found, pa.binary())]), GroupsConfig())


def measure(photographs: list[bytes | None], copies: dict[int, bytes | None]) -> tuple[float, int]:
    """The share of copies that are found, and the photographs that are wrongly in a group with a copy.

    Args:
        photographs: look of each.
        copies: number of the photograph -> look of its copy.
    """
    near = grouped([*photographs, *copies.values()])
    records, groups = near.groups.records.tolist(), near.groups.groups.tolist()
    group_of = dict(zip(records, groups, strict=True))
    originals = dict(zip(range(len(photographs), len(photographs) + len(copies)), copies, strict=True))
    told = dict(zip(*(part.tolist() for part in _alone(photographs)), strict=True))
    found = wrong = 0
    for copy, original in originals.items():
        group = group_of.get(copy)
        found += group is not None and group_of.get(original) == group
    for record, group in group_of.items():
        if record < len(photographs) and record not in told:
            owners = {
                originals[one] for one, other in group_of.items() if other == group and one in originals
            }
            wrong += owners != {record}
    return found / len(copies), wrong


def _alone(photographs: list[bytes | None]) -> tuple[np.ndarray, np.ndarray]:
    near = grouped(photographs)
    return near.groups.records, near.groups.groups


def write_sheet(pairs: list[tuple[Path, Path]], to: Path, side: int = 160) -> None:
    """Write pairs side by side, six in a row."""
    sheet = Image.new("RGB", (6 * (2 * side + 10), -(-len(pairs) // 6) * (side + 10)), "white")
    for at, pair in enumerate(pairs):
        for right, path in enumerate(pair):
            with Image.open(path) as image:
                small = image.convert("RGB").resize((side, side))
            sheet.paste(small, (at % 6 * (2 * side + 10) + right * side, at // 6 * (side + 10)))
    sheet.save(to)


def _is_usable(path: Path) -> bool:
    try:
        look_of(path.read_bytes())
    except ImageRejected as reason:
        print(f"{path} is left out: {reason}", file=sys.stderr)
        return False
    return True


def main() -> int:
    """Print the table and the pairs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", type=Path)
    parser.add_argument("--copies", type=int, default=300, help="photographs that are copied in every way")
    parser.add_argument("--sheet", type=Path, help="write a picture of the pairs among the photographs")
    arguments = parser.parse_args()
    paths: list[Path] = []
    photographs: list[bytes | None] = []
    spent = CpuSeconds()
    found = [path for path in sorted(arguments.images.rglob("*")) if path.suffix.lower() in ENDINGS]
    for first in range(0, len(found), BLOCK):
        usable = [path for path in found[first : first + BLOCK] if _is_usable(path)]
        photographs += looks_of([path.read_bytes() for path in usable], spent)
        paths += usable
    known = [at for at, look in enumerate(photographs) if look is not None]
    print(f"{len(paths):,} photographs, {len(paths) - len(known):,} of them without a look")
    begun = time.process_time()
    records, groups = _alone(photographs)
    spent.search = time.process_time() - begun
    print(f"{spent.in_words(len(paths))}\n", flush=True)
    if not arguments.copies:
        return 0
    chosen = sorted(random.Random(0).sample(range(len(paths)), min(arguments.copies, len(paths))))
    print("| copy | found | wrong |\n|---|---|---|")
    for kind, (change, quality) in KINDS.items():
        copies = {}
        for at in chosen:
            with Image.open(paths[at]) as image:
                copies[at] = look_of(copied(image.convert("RGB"), change, quality))
        found, wrong = measure(photographs, copies)
        print(f"| {kind} | {found:.1%} | {wrong} |", flush=True)
    pairs = [
        (paths[one], paths[other])
        for group in np.unique(groups)
        for members in [records[groups == group].tolist()]
        for one, other in pairwise(members)
    ]
    print(f"\n{len(pairs)} pairs among the photographs alone")
    for one, other in pairs:
        print(f"{one.relative_to(arguments.images)}  {other.relative_to(arguments.images)}")
    if arguments.sheet and pairs:
        write_sheet(pairs, arguments.sheet)
    return 0


if __name__ == "__main__":
    sys.exit(main())
