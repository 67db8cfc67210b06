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

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.job import prepare_version
from shardmill.beam_jobs.request import JobRequest
from tests.documentation.blocks import ROOT
from tests.samples.images.drawn_objects import HEIGHT, SHAPES, WIDTH, draw_objects, picture
from tests.samples.images.masks import painted
from tests.samples.images.photos import write

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
    columns = {"features": {"caption": {}, "box": box}}
    source = {"kind": "table", "table": {"file": "captions.csv"}, "columns": columns}
    config = {"source": source, "runner": {"processes": 2}}
    request = {"source": photos.absolute().as_uri(), "dataset": "photos", "root": "datasets"}
    prepare_version(JobRequest.model_validate(request | {"config": config}))


def with_masks(folder: Path) -> None:
    """Write pictures with their masks: ``images/train``, ``masks/train`` and on."""
    for split, count in {"train": 32, "val": 8}.items():
        for number in range(1, count + 1):
            pixels, mask = painted(number if split == "train" else 100 + number)
            for kind, data in (("images", pixels), ("masks", mask)):
                path = folder / kind / split / f"{number:04}.{'jpg' if kind == 'images' else 'png'}"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(data).save(path)


def with_boxes(folder: Path) -> None:
    """Write pictures ``validation/`` with the tables of Open Images."""
    (folder / "validation").mkdir(parents=True)
    boxes, images = ["ImageID,LabelName,XMin,XMax,YMin,YMax,IsGroupOf"], ["ImageID"]
    for number in range(24):
        pixels, drawn = picture(np.random.default_rng(number), 3, (20, 60))
        name = f"{number:016x}"
        Image.fromarray(pixels).save(folder / "validation" / f"{name}.jpg")
        images.append(name)
        for shape, (top, left, bottom, right) in drawn:
            edges = (left / WIDTH, right / WIDTH, top / HEIGHT, bottom / HEIGHT)
            boxes.append(f"{name},/m/{shape},{','.join(f'{edge:.4f}' for edge in edges)},0")
    names = [f"/m/{shape},{shape.capitalize()}" for shape in SHAPES]
    for file, lines in {
        "validation-annotations-bbox.csv": boxes,
        "validation-images.csv": images,
        "class-descriptions-boxable.csv": names,
    }.items():
        (folder / file).write_text("\n".join(lines) + "\n", encoding="utf-8")


def with_numbers(photos: Path, dataset: str) -> None:
    """Publish a dataset whose images have a number to predict."""
    rows = ["path,price"]
    for number, path in enumerate(sorted(photos.glob("*/*.jpg"))):
        rows.append(f"{path.parent.name}/{path.name},{number % 17 + 10 * (path.parent.name == 'cat')}")
    (photos / "prices.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    columns = {"target_columns": ["price"]}
    source = {"kind": "table", "table": {"file": "prices.csv"}, "columns": columns}
    config = {"source": source, "runner": {"processes": 2}}
    request = {"source": photos.absolute().as_uri(), "dataset": dataset, "root": "datasets"}
    prepare_version(JobRequest.model_validate(request | {"config": config}))


# python -m tests.documentation.workplace FOLDER COUNT FIRST, or
# --table, --archives, --lines, --videos, --captions, --masks, --objects or --box-table FOLDER, or
# --numbers DATASET
if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--archives", archives]:
            as_archives(Path("photos"), Path(archives))
        case ["--lines", folder]:
            as_lines(Path("photos"), Path(folder))
        case ["--videos", folder]:
            from tests.samples.images.videos import video  # needs the extra

            for at in range(8):
                clip = video(range(at * 12, at * 12 + 12), rate=4)
                write(Path(folder), {f"{'dog' if at % 2 else 'cat'}/{at}.mp4": clip})
        case ["--captions", photos]:
            with_captions(Path(photos))
        case ["--masks", folder]:
            with_masks(Path(folder))
        case ["--objects", folder]:
            draw_objects(Path(folder), {"train": 96, "val": 16})
        case ["--box-table", folder]:
            with_boxes(Path(folder))
        case ["--numbers", dataset]:
            with_numbers(Path("photos"), dataset)
        case ["--table", photos]:
            as_table(Path(photos))
        case [photos, count, first]:
            add_photographs(Path(photos), int(count), first=int(first))
