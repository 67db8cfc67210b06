"""Compare quality flags with those of CleanVision, on the same pictures in one run.

    python -m venv quality && quality/bin/pip install -r tests/benchmarks/requirements/quality.txt
    python -m tests.benchmarks.prepare.quality IMAGES --peer quality/bin/python [--sheets FOLDER]

IMAGES is a folder that ``prepare`` takes. It is prepared with bad copies of some of its JPEG files, of each
kind below. For each flag the table has the files with it: of both, only here (*ours*), only there
(*theirs*). Below are the copies of each kind that have the flag of their kind. ``--sheets`` writes pictures
of what only one of the two flags, to look at.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.job import prepare_version
from shardmill.beam_jobs.request import JobRequest
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.format.quality import QUALITY_COLUMNS, flagged

Picture = Image.Image
Flags = dict[str, set[str]]  # flag -> paths below the folder

# Flag -> the name of CleanVision; the others have none there.
NAMES = {
    "dark": "dark", "light": "light", "blurred": "blurry", "low_information": "low_information",
    "uniform": "", "border": "", "odd_aspect": "odd_aspect_ratio", "odd_size": "odd_size",
}  # fmt: skip


def _three_shades(image: Picture) -> Picture:
    return image.convert("L").quantize(3, dither=Image.Dither.NONE).convert("RGB")


# Kind of copy -> its flag, and how it is made.
COPIES: dict[str, tuple[str, Callable[[Picture], Picture]]] = {
    "a fifth as bright": ("dark", lambda image: image.point(lambda value: value * 0.2)),
    "a third as bright": ("dark", lambda image: image.point(lambda value: value * 0.33)),
    "washed out": ("light", lambda image: image.point(lambda value: 232 + value * 0.09)),
    "blurred, 2 pixels": ("blurred", lambda image: image.filter(ImageFilter.GaussianBlur(2))),
    "blurred, 5 pixels": ("blurred", lambda image: image.filter(ImageFilter.GaussianBlur(5))),
    "blurred, 12 pixels": ("blurred", lambda image: image.filter(ImageFilter.GaussianBlur(12))),
    "one shade": ("uniform", lambda image: Image.new("RGB", image.size, image.getpixel((9, 9)))),
    "three shades": ("low_information", _three_shades),
    "between black bars": ("border", lambda image: ImageOps.expand(image, (0, image.height // 8))),
    "in a white frame": ("border", lambda image: ImageOps.expand(image, image.width // 20, "white")),
    "a strip": ("odd_aspect", lambda image: image.crop((0, 0, image.width, image.width // 4))),
    "an icon": ("odd_size", lambda image: image.resize((48, 64))),
}  # fmt: skip


def write_pictures(images: Path, folder: Path, copies: int) -> dict[str, set[str]]:
    """Copy the folder and add bad copies; returns kind -> their paths below the folder."""
    shutil.copytree(images, folder)
    photographs = sorted(folder.rglob("*.jpg"))
    rng, made = random.Random(0), dict[str, set[str]]()
    for kind, (_, change) in COPIES.items():
        for path in rng.sample(photographs, copies):
            copy = path.with_name(f"{kind.replace(' ', '-').replace(',', '')}-{path.stem}.png")
            change(Image.open(path).convert("RGB")).save(copy)
            made.setdefault(kind, set()).add(str(copy.relative_to(folder)))
    return made


def of_shardmill(folder: Path, root: Path) -> Flags:
    """Prepare the folder with the default settings, and read the flags."""
    prepare_version(JobRequest(source=str(folder), dataset="quality", root=str(root), config=PrepareConfig()))
    version = Catalog(root).open("quality")
    for name, limits in version.manifest.quality.items():
        print(f"{name:16} {limits.in_words}")
    table = version.scan(["source_uri", *QUALITY_COLUMNS]).to_table()
    uris = np.array(table["source_uri"].to_pylist())
    return {name: set(uris[bad].tolist()) for name, bad in flagged(table, version.manifest.quality).items()}


def of_cleanvision(folder: Path, python: str) -> Flags:
    """Run CleanVision with its default limits."""
    program = Path(__file__).with_name("peers") / "quality_cleanvision.py"
    done = subprocess.run([python, program, folder], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return {
        flag: {path for path, issues in found.items() if name in issues}
        for flag, name in NAMES.items()
        if name
    }


def write_sheet(path: Path, folder: Path, names: list[str], side: int = 120) -> None:
    """Write a picture of some files, as they are."""
    columns = 10
    sheet = Image.new("RGB", (columns * side, math.ceil(len(names) / columns) * side), "magenta")
    for at, name in enumerate(names):
        small = ImageOps.contain(Image.open(folder / name).convert("RGB"), (side - 4, side - 4))
        sheet.paste(small, (at % columns * side + 2, at // columns * side + 2))
    sheet.save(path)


def main() -> None:
    """Make the pictures, ask both, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("--peer", required=True, help="Python that has CleanVision")
    parser.add_argument("--copies", type=int, default=40, help="of each kind")
    parser.add_argument("--sheets", type=Path, help="folder for pictures of what only one of them flags")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "pictures"
        made = write_pictures(given.images, folder, given.copies)
        planted = set[str]().union(*made.values())
        ours, theirs = of_shardmill(folder, Path(work) / "root"), of_cleanvision(folder, given.peer)
        print("\nflag             both        ours        theirs      (in brackets: photographs, no copies)")
        for flag, here in ours.items():
            there = theirs.get(flag, set())
            parts = {"both": here & there, "ours": here - there, "theirs": there - here}
            cells = [f"{len(part):5} ({len(part - planted)})" for part in parts.values()]
            print(f"{flag:16} {''.join(f'{cell:12}' for cell in cells)}{'' if NAMES[flag] else 'not there'}")
            for name, part in parts.items() if given.sheets else ():
                if part and name != "both":
                    given.sheets.mkdir(parents=True, exist_ok=True)
                    shown = sorted(part - planted)[:60] + sorted(part & planted)[:40]
                    write_sheet(given.sheets / f"{flag}-{name}.png", folder, shown)
        print(f"\ncopies, {given.copies} of each kind    ours  theirs")
        for kind, (flag, _) in COPIES.items():
            there = f"{len(made[kind] & theirs[flag]):5}" if flag in theirs else "    -"
            print(f"{kind:26} {len(made[kind] & ours[flag]):5} {there}  {flag}")


if __name__ == "__main__":
    main()
