"""The folder that the pages are run in: photographs, and their first published version."""

from __future__ import annotations

import base64
import json
import os
import sys
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from beam_jobs.config import PrepareConfig
from beam_jobs.job import prepare_version
from beam_jobs.request import JobRequest
from tests.documentation.blocks import ROOT

_SIZE = (40, 56)  # pixels, height and width


def add_photographs(
    folder: Path, per_class: int, *, first: int = 1, classes: tuple[str, ...] = ("cat", "dog")
) -> None:
    """Write JPEGs ``folder/<class>/0001.jpg`` and on: noise around a colour of the class."""
    for number, label in enumerate(classes):
        (folder / label).mkdir(parents=True, exist_ok=True)
        for image in range(first, first + per_class):
            random = np.random.default_rng([number, image])
            coarse = random.integers(0, 256, (6, 8, 3))
            coarse[..., number % 3] = 255 - coarse[..., number % 3] // 4
            pixels = Image.fromarray(coarse.astype(np.uint8)).resize(_SIZE[::-1], Image.Resampling.BICUBIC)
            pixels.save(folder / label / f"{image:04d}.jpg", quality=90)


def make_workplace(folder: Path, per_class: int = 160) -> Path:
    """Fill a folder with ``photos/`` and, published from them, ``datasets/photos``; return it."""
    add_photographs(folder / "photos", per_class)
    config = PrepareConfig.model_validate({"runner": {"processes": 2}})
    source, root = (folder / "photos").as_uri(), str(folder / "datasets")
    prepare_version(JobRequest(source=source, dataset="photos", root=root, config=config))
    return folder


def environment(home: Path) -> dict[str, str]:
    """The environment of a reader who has entered the virtual environment."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SHARDMILL_HOME": str(home),
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def as_table(folder: Path) -> None:
    """Turn class folders into ``images/`` and ``images.csv`` of bare names, senders and labels."""
    rows = ["image,sender,label"]
    (folder / "images").mkdir()
    for number, photograph in enumerate(sorted(folder.glob("*/*.jpg"))):
        label = {"cat": "Hat", "dog": "T-Shirt"}[photograph.parent.name] if number % 40 else "Not sure"
        photograph.rename(folder / "images" / f"{number:06x}.jpg")
        rows.append(f"{number:06x},u{number % 32:02},{label}")
    (folder / "images.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def as_archives(photos: Path, folder: Path) -> None:
    """Pack class folders into ``train-0001.tar`` and ``val-0001.tar``."""
    folder.mkdir()
    paths = sorted(photos.glob("*/*.jpg"))
    for name, chosen in {"train-0001.tar": paths[::2], "val-0001.tar": paths[1::2]}.items():
        with tarfile.open(folder / name, "w") as archive:
            for path in chosen:
                archive.add(path, path.relative_to(photos).as_posix())


def as_lines(photos: Path, folder: Path) -> None:
    """Write photographs into JSON lines, in base64."""
    folder.mkdir()
    with (folder / "photos.jsonl").open("w", encoding="utf-8") as stream:
        for number, path in enumerate(sorted(photos.glob("*/*.jpg"))):
            image = base64.b64encode(path.read_bytes()).decode("ascii")
            stream.write(json.dumps({"image": image, "label": path.parent.name, "id": number}) + "\n")


def with_captions(photos: Path) -> None:
    """Publish another version of ``datasets/photos``, whose records have a caption and a box."""
    rows = ["path,label,caption,box"]
    for path in sorted(photos.glob("*/*.jpg")):
        label = path.parent.name
        rows.append(f"{label}/{path.name},{label},a {label} on a chair,0.1 0.2 0.8 0.9")
    (photos / "captions.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    box = {"separator": " ", "dtype": "float", "length": 4}
    table = {"file": "captions.csv", "features": {"caption": {}, "box": box}}
    config = {"source": {"kind": "table", "table": table}, "runner": {"processes": 2}}
    request = {"source": photos.absolute().as_uri(), "dataset": "photos", "root": "datasets"}
    prepare_version(JobRequest.model_validate(request | {"config": config}))


# python -m tests.documentation.workplace FOLDER COUNT FIRST, or
# --table, --archives, --lines or --captions FOLDER
if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--archives", archives]:
            as_archives(Path("photos"), Path(archives))
        case ["--lines", folder]:
            as_lines(Path("photos"), Path(folder))
        case ["--captions", photos]:
            with_captions(Path(photos))
        case ["--table", photos]:
            as_table(Path(photos))
        case [photos, count, first]:
            add_photographs(Path(photos), int(count), first=int(first))
