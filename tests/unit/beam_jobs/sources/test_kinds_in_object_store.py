"""Kinds of sources whose images are plain files, or addresses, in an object store: as on a local disk."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import file_refs
from shardmill.beam_jobs.sources import list_inputs, make_readable, open_reader
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kind_modules import Workplace
from shardmill.infra.storage.filesystem import Storage
from tests.samples.images.photos import jpeg, write
from tests.samples.images.videos import video
from tests.samples.sources.image_server import image, running_server
from tests.samples.stores.object_store import Fault, ObjectStore, serve_with_credentials


def black_png() -> bytes:
    sink = io.BytesIO()
    Image.new("RGB", (64, 48)).save(sink, "PNG")
    return sink.getvalue()


VOC = (
    "<annotation><filename>{name}</filename><object><name>cat</name><bndbox><xmin>1</xmin><ymin>2</ymin>"
    "<xmax>5</xmax><ymax>6</ymax></bndbox></object></annotation>"
)
PICTURES = {f"photos/{number}.jpg": jpeg(number) for number in range(4)}
COCO = {
    "images": [{"id": number, "file_name": f"{number}.jpg"} for number in range(4)],
    "annotations": [{"image_id": 0, "category_id": 1, "bbox": [1, 2, 3, 4]}],
    "categories": [{"id": 1, "name": "cat"}],
}
BLACK = black_png()
SEGMENTS = [{"id": 0, "category_id": 1}]
PANOPTIC = [{"image_id": at, "file_name": f"{at}.png", "segments_info": SEGMENTS} for at in range(4)]
CAT = {"_cls": "Classification", "label": "cat"}
SAMPLES = [{"filepath": f"photos/{at}.jpg", "l": CAT} for at in range(4)]
ROWS = b"path,label,box,m\nphotos/0.jpg,cat,1 2 3 4,0.png\nphotos/1.jpg,,,"
SOURCES: dict[str, tuple[dict[str, bytes], dict[str, Any]]] = {
    "coco": (
        {**PICTURES, "i.json": json.dumps(COCO).encode()},
        {"objects": {"annotations": {"file": "i.json", "images": "photos"}}},
    ),
    "voc": (
        {**PICTURES, **{f"xml/{at}.xml": VOC.format(name=f"{at}.jpg").encode() for at in range(4)}},
        {"objects": {"annotations": {"file": "xml/*.xml", "images": "photos"}}},
    ),
    "box_table": (
        {**PICTURES, "t.csv": b'path,label,box\nphotos/0.jpg,cat,"[1,2,3,4]"\nphotos/1.jpg,,\n'},
        {"objects": {"annotations": "t.csv", "table": {"box_columns": "box", "box_format": "xyxy"}}},
    ),
    "panoptic": (
        {
            **{f"p/{at}.png": BLACK for at in range(4)},
            **PICTURES, "p.json": json.dumps({**COCO, "annotations": PANOPTIC}).encode(),
        },
        {"kind": "coco", "objects": {"annotations": {"file": "p.json", "images": "photos"}}},
    ),
    "open_images": (
        {**PICTURES, "masks/0.png": BLACK, "t.csv": ROWS},
        {
            "kind": "box_table", "columns": {"mask": "m"},
            "objects": {"annotations": "t.csv", "table": {"box_columns": "box"}},
        },
    ),
    "fiftyone": (
        {**PICTURES, "samples.json": json.dumps({"samples": SAMPLES}).encode()},
        {"labels": "class", "objects": {"annotations": "samples.json"}},
    ),
    "yolo": (
        {
            **{f"images/{name}": data for name, data in PICTURES.items()},
            "labels/photos/1.txt": b"0 .5 .5 .1 .1",
            "data.yaml": b"train: list.txt\nval: images/photos\nnames: [cat]",
            "list.txt": b"photos/1.jpg\nno.jpg",
        },
        {},
    ),
    "labelme": (
        {**PICTURES, **{f"photos/{at}.json": b'{"shapes": [], "imagePath": "a/3.jpg"}' for at in range(2)}},
        {"objects": {"annotations": "photos/*.json"}},
    ),
    "video": (
        {"cat/1.mp4": video(range(3), "libx264", options={"bf": "2"}), "cat/2.webm": b"no video"},
        {"options": {"rate": "all"}},
    ),
    "masks": (
        {f"{folder}/{at}.png": jpeg(at) for folder in ("images", "masks") for at in range(3)},
        {"masks": {"classes": ["ground", "cat"]}},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with serve_with_credentials("kinds") as store:
        yield store


def read(location: str, settings: Mapping[str, Any], run: Path) -> tuple[list[dict[str, Any]], list[bytes]]:
    """The listing without times of change, and the images, as a run reads them."""
    folder, config = SourceFolder(location), PrepareConfig.model_validate({"source": settings})
    scratch = Storage.at(run / "spool")
    listing = list_inputs(folder, config, Workplace(scratch, Storage.at(run)))
    references = listing.to_read()
    make_readable(folder, config, references, scratch)
    reader = open_reader(folder, config, scratch)
    rows = listing.table.to_pylist()
    times = dict.fromkeys(("mtime_ns", "mask_mtime_ns"), 0)
    rows = [{**row, **{name: times.get(name, value) for name, value in row.items()}} for row in rows]
    return rows, [reader.read(file) for file in file_refs(references)]


@pytest.mark.parametrize("kind", SOURCES)
def test_annotations_and_masks(kind: str, store: ObjectStore, tmp_path: Path) -> None:
    files, settings = SOURCES[kind]
    source = write(tmp_path / kind, files)
    store.upload(source, source.name)
    local = read(str(source), {"kind": kind, **settings}, tmp_path / "run")
    assert len(local[1]) >= 2
    assert read(store.location(kind), {"kind": kind, **settings}, tmp_path / "other run") == local


def test_an_annotation_that_the_store_refuses_costs_its_row(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, settings = SOURCES["voc"]
    store.upload(
        write(tmp_path / "refused", {**files, "xml/2.xml": files["xml/2.xml"] + b" " * 999}), "refused"
    )
    monkeypatch.setattr(store, "faults", [Fault("refused/xml/2.xml", 403)])
    rows, _ = read(store.location("refused"), {"kind": "voc", **settings}, tmp_path / "run")
    (lost,) = (row for row in rows if row["reason"] == "broken_row")
    assert lost["uri"] == "xml/2.xml#image=1"
    assert lost["message"].endswith("xml/2.xml: the store refuses it (ACCESS_DENIED)")
    assert len([row for row in rows if row["reason"] is None]) == 3


def test_a_table_of_addresses(store: ObjectStore, tmp_path: Path) -> None:
    with running_server() as server:
        urls = [server.give(f"/{number}.jpg", image(jpeg(number))) for number in range(3)]
        source = write(
            tmp_path / "urls", {"t.csv": "\n".join(["url,label", *(f"{u},cat" for u in urls)]).encode()}
        )
        store.upload(source, source.name)
        settings = {"kind": "urls", "table": {"file": "t.csv"}, "columns": {"image": "url"}}
        settings["urls"] = {"allow_private_hosts": True}
        local = read(str(source), settings, tmp_path / "run")
        assert read(store.location("urls"), settings, tmp_path / "other run") == local
    assert local[1] == [jpeg(number) for number in range(3)]
