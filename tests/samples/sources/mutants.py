"""Damaged sources of every kind, made from sound ones.

What ``mutate`` writes depends on kind and number alone, so a failure can be repeated. Some damages are
blind, others keep the form of a file and change a value in it, since blind damage is mostly found by the
first check.

The command lists and reads damaged sources of every kind, and prints kind, number and outcome of each, so a
process that dies or hangs has named the source that did it::

    python -m tests.samples.sources.mutants 0 10
"""

from __future__ import annotations

import copy
import faulthandler
import io
import json
import random
import resource
import signal
import struct
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import Status, file_refs
from shardmill.beam_jobs.sources import list_inputs, open_reader
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.infra.errors import ShardmillError, StorageError
from shardmill.infra.format.records import frame
from tests.samples.sources.archives import make_tar
from tests.samples.sources.columns import with_columns
from tests.samples.sources.hostile import HALF, npy
from tests.samples.sources.rows import example, idx_bytes
from tests.samples.sources.tfds_folders import make_tfds, plain_records

SECONDS_A_SOURCE = 60  # far beyond what any of these small sources should take, on any machine
_ROWS_LOOKED_AT = 200  # a header may invent many more
_MEMORY_BYTES = 6 << 30  # of the process: what a lying header asks for is far beyond

_IMAGE = b"\xff\xd8\xff\xe0" + b"an image" * 4
# Values that a reader may not expect in place of a good one.
_STRANGE: tuple[Any, ...] = (
    None, -1, 0, 10**25, 10**400, 1e308, float("inf"), float("nan"), HALF, "", " ", "\0", "\n", "../a.jpg",
    "a" * 5000, [], {}, True, [[]], {"a": 1}, [None], "1e999",
)  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """A sound source.

    Attributes:
        settings: of the source, with its kind.
        files: path -> content.
        damaged: the file that is damaged.
        values: the values of that file as JSON, and how they are written; None if it is not made of any.
    """

    settings: Mapping[str, Any]
    files: Mapping[str, bytes]
    damaged: str
    values: tuple[Any, Callable[[Any], bytes]] | None = None


def _csv(rows: list[list[Any]]) -> bytes:
    def cell(value: Any) -> str:
        text = value if isinstance(value, str) else json.dumps(value)
        return (
            text.encode("utf-8", "replace").decode()
            if '"' not in text
            else '"' + text.replace('"', '""') + '"'
        )

    return "\n".join(",".join(map(cell, row if isinstance(row, list) else [row])) for row in rows).encode()


def _lines(rows: list[Any]) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, row_group_size=3)
    return sink.getvalue()


def _tar(files: Mapping[str, bytes]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return make_tar(Path(folder) / "a.tar", files).read_bytes()


def _zip(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return sink.getvalue()


def _files_of(make: Callable[[Path], object]) -> dict[str, bytes]:
    """Return the files that a function writes into a folder."""
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def _array_record(path: Path, records: list[bytes]) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), "group_size:1")
    for record in records:
        writer.write(record)
    writer.close()


def _npz() -> bytes:
    arrays = {"x.npy": npy("(3, 4, 4)", values=bytes(48)), "y.npy": npy("(3,)", values=bytes(3))}
    return _zip(arrays)


_VOC = (
    "<annotation><filename>a.jpg</filename><size><width>9</width><height>8</height></size><object>"
    "<name>cat</name><difficult>0</difficult><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>5</xmax><ymax>6</ymax>"
    "</bndbox></object></annotation>"
)
_COCO: dict[str, Any] = {
    "images": [
        {"id": 1, "file_name": "a.jpg", "height": 9, "width": 9},
        {"id": 2, "file_name": "b.jpg"},
    ],
    "annotations": [
        {"image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2], "iscrowd": 0},
        {"image_id": 2, "category_id": 1, "bbox": [1, 1, 2, 2]},
    ],
    "categories": [{"id": 1, "name": "cat"}],
}
_IMAGES = {"a.jpg": _IMAGE, "b.jpg": _IMAGE + b"b"}
_YOLO = {
    **_IMAGES, "a.txt": b"0 0.5 0.5 0.1 0.1\n", "b.txt": b"0 0.5 0.5 0.1 0.1\n0 .1 .1 .2 .1 .2 .2\n",
    "data.yaml": b"path: .\ntrain: .\nval: \nnames: {0: cat}\n",
}  # fmt: skip
_LABELME = {
    "shapes": [
        {"label": "cat", "shape_type": kind, "points": [[1, 2], [9, 8], [3, 4]][:count], "group_id": 1}
        for kind, count in (("polygon", 3), ("rectangle", 2), ("circle", 2), ("point", 1), ("line", 2))
    ],
    "imagePath": "a.jpg", "imageHeight": 40, "imageWidth": 80,
}  # fmt: skip
_SIZED = {"id": "r", "original_width": 80, "original_height": 40}
_BOX = {"x": 1, "y": 2, "width": 30, "height": 40, "rotation": 9, "rectanglelabels": ["cat"]}
_REGIONS: list[dict[str, Any]] = [
    {**_SIZED, "value": _BOX},
    {**_SIZED, "id": "p", "value": {"points": [[1, 2], [3, 4], [5, 1]], "polygonlabels": ["cat"]}},
    {**_SIZED, "id": "k", "parentID": "r", "value": {"x": 1, "y": 2, "keypointlabels": ["nose"]}},
]
_TASKS = [
    {"data": {"image": f"/data/upload/1/1a2b3c4d-{name}"}, "annotations": [{"result": _REGIONS}]}
    for name in _IMAGES
]
_VIA_SHAPES: list[dict[str, Any]] = [
    {"name": "rect", "x": 1, "y": 2, "width": 3, "height": 4},
    {"name": "polygon", "all_points_x": [1, 2, 3], "all_points_y": [1, 2, 5]},
]
_VIA = {
    name: {
        "filename": name,
        "regions": [{"shape_attributes": one, "region_attributes": {"c": "cat"}} for one in _VIA_SHAPES],
    }
    for name in _IMAGES
}
_CVAT = """<annotations><image id="0" name="a.jpg" width="80" height="40">
<box label="cat" xtl="1" ytl="2" xbr="9" ybr="8" rotation="3"/><polygon label="cat" points="0,0;20,0;0,10"/>
<mask label="cat" rle="1, 3, 2" left="1" top="2" width="3" height="2"/><points label="cat" points="1,2;3,4"/>
<skeleton label="dog"><points label="nose" points="1,2"/></skeleton></image><image id="1" name="b.jpg"/>
</annotations>"""
_ROWS = [
    {
        "path": "a.jpg",
        "label": "cat",
        "split": "train",
        "n": 1,
        "tags": ["x"],
        "boxes": [[1, 1, 2, 2]],
        "names": ["cat"],
    },
    {"path": "b.jpg", "label": "dog", "split": "val", "n": 2, "tags": [], "boxes": [], "names": []},
]
_ARRAYS = {
    f"{split}_{name}.npy": data
    for split in ("train", "test")
    for name, data in (
        ("images", npy("(3, 4, 4)", values=bytes(48))),
        ("labels", npy("(3,)", "'<f8'", bytes(24))),
    )
}
_TABLE = {"features": ["n", "tags"], "split": "split"}
_WDS = {
    "1.jpg": _IMAGE, "1.json": b'{"label": ["cat"], "n": 1}',
    "2.jpg": _IMAGE + b"2", "2.json": b'{"label": [], "n": 2}',
    "3.jpg": _IMAGE + b"3", "3.cls": b"cat", "3.txt": b"words",
}  # fmt: skip


def _samples() -> dict[str, Sample]:
    of_boxes = {"box_columns": "boxes", "label": "names", **_TABLE}
    boxes = with_columns("objects", {"annotations": "t.jsonl", "table": of_boxes})
    named = [["path", "label", "split", "n"], ["a.jpg", "cat", "train", 1], ["b.jpg", "dog", "val", 2]]
    columns = {name: [row[name] for row in _ROWS] for name in ("path", "label", "split", "n", "tags")}
    records = [example(image=[_IMAGE], label=[number], tag=[b"x"], f=[0.5]) for number in (0, 1)]
    of_tfds = _files_of(
        lambda folder: make_tfds(folder, {"train": [plain_records(2)], "test": [plain_records(2, 2)]})
    )
    described = {name: json.loads(of_tfds[name]) for name in ("dataset_info.json", "features.json")}
    rows = {"image": [_IMAGE, _IMAGE + b"b"] * 2, "label": ["a", "b"] * 2, "n": [1, 2, 3, 4]}
    return {
        "csv": Sample(
            {"kind": "table", "table": {"file": "t.csv"}, "columns": {"features": ["n"], "split": "split"}},
            {**_IMAGES, "t.csv": _csv(named)}, "t.csv", (named, _csv),
        ),
        "csv of numbers": Sample(
            {"kind": "table", "table": {"file": "t.csv"}, "columns": {"class_names": ["a", "b"]}},
            {**_IMAGES, "t.csv": b"path,label\na.jpg,0\nb.jpg,1\n"}, "t.csv",
            ([["path", "label"], ["a.jpg", 0], ["b.jpg", 1]], _csv),
        ),
        "jsonl": Sample(
            {"kind": "table", "table": {"file": "t.jsonl"}, "columns": _TABLE},
            {**_IMAGES, "t.jsonl": _lines(_ROWS)}, "t.jsonl", (_ROWS, _lines),
        ),
        "table of parquet": Sample(
            {"kind": "table", "table": {"file": "t.parquet"}, "columns": _TABLE},
            {**_IMAGES, "t.parquet": _parquet(**columns)}, "t.parquet",
        ),
        "parquet": Sample(
            {"kind": "parquet", "columns": {"features": ["n"]}}, {"a.parquet": _parquet(**rows)}, "a.parquet"
        ),
        "npy": Sample(
            {"kind": "arrays"},
            _ARRAYS,
            "train_images.npy",
        ),
        "labels of npy": Sample(
            {"kind": "arrays"},
            _ARRAYS,
            "train_labels.npy",
        ),
        "npz": Sample({"kind": "arrays"}, {"a.npz": _npz()}, "a.npz"),
        "idx": Sample(
            {"kind": "arrays", "labels": "none"},
            {"images.idx": idx_bytes(np.zeros((3, 4, 4), np.uint8))}, "images.idx",
        ),
        "tfrecord": Sample(
            {"kind": "tfrecord", "columns": {"features": ["tag", "f"]}},
            {"a.tfrecord": b"".join(map(frame, records))}, "a.tfrecord",
        ),
        "array_record": Sample(
            {"kind": "array_record"},
            _files_of(lambda folder: _array_record(folder / "a.array_record", records)), "a.array_record",
        ),
        "tfds": Sample({"kind": "tfds"}, of_tfds, "beans-train.tfrecord-00000-of-00001"),
        **{
            f"tfds, {name}": Sample({"kind": "tfds"}, of_tfds, name, (values, _json))
            for name, values in described.items()
        },
        "tar": Sample(
            {"kind": "archive"}, {"a.tar": _tar({f"cat/{n}": d for n, d in _IMAGES.items()})}, "a.tar"
        ),
        "webdataset": Sample(
            {"kind": "archive", "labels": "multi", "columns": {"features": ["n", "txt"]}},
            {"a.tar": _tar(_WDS)}, "a.tar",
        ),
        "zip": Sample(
            {"kind": "archive"}, {"a.zip": _zip({f"cat/{n}": d for n, d in _IMAGES.items()})}, "a.zip"
        ),
        "coco": Sample(
            {"kind": "coco", "objects": {"annotations": "i.json"}},
            {**_IMAGES, "i.json": _json(_COCO)}, "i.json", (_COCO, _json),
        ),
        "voc": Sample(
            {"kind": "voc", "objects": {"annotations": "*.xml"}},
            {**_IMAGES, "a.xml": _VOC.encode(), "b.xml": _VOC.replace("a.jpg", "b.jpg").encode()}, "a.xml",
        ),
        "yolo": Sample({"kind": "yolo"}, _YOLO, "b.txt"),
        "yolo, data.yaml": Sample({"kind": "yolo"}, _YOLO, "data.yaml"),
        **{
            kind: Sample(
                {"kind": kind, "objects": {"annotations": f"m.{ending}"}}, {**_IMAGES, f"m.{ending}": data},
                f"m.{ending}", None if ending == "xml" else (values, _json),
            )
            for kind, ending, values, data in (
                ("labelme", "json", _LABELME, _json(_LABELME)),
                ("label_studio", "json", _TASKS, _json(_TASKS)),
                ("via", "json", _VIA, _json(_VIA)), ("cvat", "xml", None, _CVAT.encode()),
            )
        },
        "boxes": Sample(
            {"kind": "box_table", **boxes}, {**_IMAGES, "t.jsonl": _lines(_ROWS)}, "t.jsonl",
            (_ROWS, _lines),
        ),
    }  # fmt: skip


SAMPLES = _samples()


def mutate(kind: str, number: int, folder: Path) -> Mapping[str, Any]:
    """Write the damaged source of this kind and number; return the settings of the source."""
    sample, draw = SAMPLES[kind], random.Random(f"{kind} {number}")
    folder.mkdir()
    for name, data in sample.files.items():
        (folder / name).write_bytes(data)
        if name[:2] == "a." and name == sample.damaged:
            (folder / f"b{name[1:]}").write_bytes(data)  # or nothing would be left to list
    if sample.values is not None and number % 2:
        values, write = sample.values
        damaged = write(_with_strange_values(values, draw))
    else:
        damaged = _damaged(sample.files[sample.damaged], draw)
        if ".tfrecord" in sample.damaged and number % 2:
            damaged = b"".join(frame(_damaged(record, draw)) for record in _payloads(sample))
    (folder / sample.damaged).write_bytes(damaged)
    return sample.settings


def _payloads(sample: Sample) -> list[bytes]:
    data, found = sample.files[sample.damaged], []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        found.append(data[12 : 12 + length])
        data = data[16 + length :]
    return found


def _with_strange_values(values: Any, draw: random.Random) -> Any:
    """Put strange values into rows or an object; a table of values keeps its rows."""
    values = json.loads(json.dumps(values))
    for _ in range(draw.choice((1, 1, 2))):
        paths: list[list[Any]] = []
        _walk(values, [], paths)
        path = draw.choice(paths[1:])
        place = values
        for key in path[:-1]:
            place = place[key]
        try:
            place[path[-1]] = copy.deepcopy(draw.choice(_STRANGE))
        except (TypeError, IndexError, KeyError):
            continue
    return values


def _walk(value: Any, path: list[Any], found: list[list[Any]]) -> None:
    found.append(path)
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        _walk(value[key], [*path, key], found)


def _damaged(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4))):
        if not changed:
            break
        # Headers and directories lie at both ends, and deserve most of the damage.
        end = draw.random() < 0.5
        span = min(len(changed), draw.choice((64, 700, len(changed))))
        at = draw.randrange(span)
        at = len(changed) - 1 - at if end else at
        what = draw.randrange(6)
        if what < 2:
            changed[at] ^= 1 << draw.randrange(8)
        elif what == 2:
            changed[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x2C, 0x7B))
        elif what == 3:
            length = draw.choice((2, 4, 8))
            changed[at : at + length] = bytes([draw.choice((0, 0xFF, 0x7F))]) * length
        elif what == 4:
            del changed[at : at + draw.choice((1, 2, 16, 300))]
        elif draw.random() < 0.5:
            del changed[at:]
        else:
            changed[at:at] = changed[at : at + draw.choice((1, 12, 200))] * draw.choice((1, 3))
    return bytes(changed)


def outcome(settings: Mapping[str, Any], folder: Path) -> str:
    """List and read a source as a job does: "ok", "refused" and why, or where it crashed and by what."""
    config = PrepareConfig.model_validate({"source": settings})
    try:
        listing = list_inputs(SourceFolder(str(folder)), config)
        rows = listing.table.slice(0, _ROWS_LOOKED_AT).to_pylist()
        lost = [row for row in rows if row["status"] != Status.TO_READ]
        if not all(row["reason"] and row["message"] for row in lost):
            return "SILENT"
        reader = open_reader(SourceFolder(str(folder)), config)
        for file in file_refs(listing.to_read().slice(0, _ROWS_LOOKED_AT)):
            try:
                reader.read(file)
            except SourceFault as fault:
                if not fault.message:
                    return "SILENT"
    except ShardmillError as error:
        # An error of this machine would be tried again and again.
        return f"refused {error.message}" if not isinstance(error, StorageError) else f"CRASH {error!r}"
    except Exception as error:  # noqa: BLE001 - any other error would end a job with a traceback
        place = [frame for frame in extract_tb(error.__traceback__) if "beam_jobs" in frame.filename][-1]
        return f"CRASH {type(error).__name__} {str(error)[:80]!r} in {place.filename}:{place.lineno}"
    return "ok"


def main(first: int, end: int) -> None:
    """List and read the damaged sources of these numbers, of every kind."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    with tempfile.TemporaryDirectory() as root:
        for number in range(first, end):
            for kind in SAMPLES:
                print(kind, number, sep=":", end=": ", flush=True)
                folder = Path(root) / f"{kind} {number}"
                signal.alarm(SECONDS_A_SOURCE)
                print(outcome(mutate(kind, number, folder), folder), flush=True)
                signal.alarm(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
