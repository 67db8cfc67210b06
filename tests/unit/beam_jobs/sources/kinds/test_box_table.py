"""The listings of tables of boxes: a row an object or a row an image, and what is wrong in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pydantic import ValidationError

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import Status
from shardmill.beam_jobs.sources import list_inputs, open_source
from shardmill.beam_jobs.sources.kinds import box_table
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import glance_at
from shardmill.beam_jobs.sources.recognition.recognising import recognise, settled
from shardmill.infra.errors import ConfigError, NotFoundError
from shardmill.infra.settings import validate
from tests.samples.sources.columns import with_columns
from tests.samples.sources.requests import asked
from tests.unit.beam_jobs.sources.kinds.test_coco_shapes import objects_of
from tests.unit.beam_jobs.sources.kinds.test_objects import objects, outcomes, with_images

READ, FILTERED, LOST = Status.TO_READ, Status.FILTERED, Status.QUARANTINED

OPEN_IMAGES = (
    "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,"
    "IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside"
)
OPEN_IMAGES_TABLE: dict[str, Any] = {
    "image": "ImageID",
    "label": "LabelName",
    "box_columns": ["XMin", "YMin", "XMax", "YMax"],
    "units": "relative",
    "crowd_column": "IsGroupOf",
}


def configured(annotations: Any, table: dict[str, Any], **more: Any) -> PrepareConfig:
    source = {
        "kind": "box_table",
        **with_columns("objects", {"annotations": annotations, "table": table, **more}),
    }
    return PrepareConfig.model_validate({"source": source})


def listed(folder: Path, config: PrepareConfig, *images: str) -> Listing:
    return box_table.list_inputs(with_images(folder, *images), config)


def left_out(listing: Listing) -> str:
    (warning,) = (text for text in listing.warnings if "are left out:" in text)
    return warning


def test_open_images_is_read_as_it_writes_its_tables(tmp_path: Path) -> None:
    rows = [
        "000a1249af2bc5f0,xclick,/m/0cmf2,1,0.012500,0.195312,0.148438,0.587500,0,1,0,0,0",
        "0001eeaf4aed83f9,xclick,/m/0cmf2,1,0.022673,0.964201,0.071038,0.800546,0,0,1,0,0",
        "000a1249af2bc5f0,xclick,/m/01g317,1,0.025000,1.200000,0.500000,0.750000,0,1,0,0,0",
    ]
    (tmp_path / "validation-annotations-bbox.csv").write_text("\n".join([OPEN_IMAGES, *rows]) + "\n")
    (tmp_path / "classes.csv").write_text("/m/0cmf2,Airplane\n/m/01g317,Person\n")
    (tmp_path / "images.csv").write_text(
        "ImageID,Subset\n000a1249af2bc5f0,validation\nfeed,validation\nbeef,validation\n"
    )
    part = {
        "file": "validation-annotations-bbox.csv",
        "images": "validation",
        "split": "validation",
        "image_list": "images.csv",
    }
    config = configured(
        part, {**OPEN_IMAGES_TABLE, "names_file": "classes.csv"}, merge_labels={"Person": "p"}
    )
    names = ("000a1249af2bc5f0", "0001eeaf4aed83f9", "feed", "nobody")
    listing = listed(tmp_path, config, *(f"validation/{name}.jpg" for name in names))
    assert outcomes(listing) == {
        "classes.csv": (FILTERED, "table"),
        "images.csv": (FILTERED, "table"),
        "images.csv#row=3": (LOST, "missing_file"),
        "validation-annotations-bbox.csv": (FILTERED, "table"),
        "validation/0001eeaf4aed83f9.jpg": (READ, None),
        "validation/000a1249af2bc5f0.jpg": (READ, None),
        "validation/feed.jpg": (READ, None),
        "validation/nobody.jpg": (FILTERED, "not_in_table"),
    }
    boxes, classes, crowds, *rest = objects(listing, "validation/000a1249af2bc5f0.jpg")
    assert boxes == pytest.approx([0.148438, 0.0125, 0.5875, 0.195312, 0.5, 0.025, 0.75, 1.0])
    assert (classes, crowds, rest) == (["Airplane", "p"], [0, 0], [0, None, ["Airplane", "p"]])
    assert objects(listing, "validation/0001eeaf4aed83f9.jpg")[2] == [1]
    assert objects(listing, "validation/feed.jpg")[0] == []
    assert {row["split"] for row in listing.table.to_pylist() if row["status"] == READ} == {"validation"}
    assert not [text for text in listing.warnings if "left out" in text]


HOSTILE = """path;label;xmin;ymin;xmax;ymax;height;width;fold;patient
a;cat;10;5;30;35;40;80;train;p1
a; dog ;-10;0;10;90.5;40;80;train;p1
a;cat;x;5;30;35;40;80;train;p1
a;cat;nan;5;30;35;40;80;train;p1
a;cat;inf;5;30;35;40;80;train;p1
a;cat;1_0;5;30;35;40;80;train;p1
a;cat;;5;30;35;40;80;train;p1
a;cat;30;5;10;35;40;80;train;p1
a;cat;10;5;10;35;40;80;train;p1
a;cat;90;5;95;35;40;80;train;p1
a;;10;5;30;35;40;80;train;p1
a;skip;10;5;30;35;40;80;train;p1
b.png;;;;;;;;VAL;
c;cat;1;2;3;4;;;train;
c;cat;1;2;3;5;;;test;
d;cat;1;2;3;4;;;holdout;
;cat;1;2;3;4;;;train;
e;cat;1;2
../a;cat;1;2;3;4;;;train;
gone;cat;1;2;3;4;;;train;
"""


def test_every_row_of_a_hostile_table_is_accounted_for(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(HOSTILE)
    table = {"split": "fold", "group": "patient", "size_columns": ["height", "width"]}
    config = configured("t.csv", table, drop_labels="skip")
    listing = listed(tmp_path, config, "a.jpg", "b.png", "c.jpg", "d.jpg", "e.jpg")
    assert outcomes(listing) == {
        "a.jpg": (READ, None),
        "b.png": (READ, None),
        "c.jpg": (LOST, "contradicting_rows"),
        "d.jpg": (LOST, "unknown_split"),
        "e.jpg": (FILTERED, "not_in_table"),
        "t.csv": (FILTERED, "table"),
        "t.csv#row=17": (LOST, "bad_path"),
        "t.csv#row=18": (LOST, "broken_row"),
        "t.csv#row=19": (LOST, "bad_path"),
        "t.csv#row=20": (LOST, "missing_file"),
    }
    boxes = [5, 10, 35, 30, 0, 0, 40, 10]  # the second ends at the edges of its image
    assert objects(listing, "a.jpg") == (boxes, ["cat", "dog"], [0, 0], 10, [40, 80], ["cat", "dog"])
    assert objects(listing, "b.png")[:4] == ([], [], [], 0)
    rows = {row["uri"]: row for row in listing.table.to_pylist()}
    assert (rows["a.jpg"]["split"], rows["a.jpg"]["group"]) == ("train", "p1")
    assert rows["b.png"]["split"] == "validation"
    assert rows["c.jpg"]["message"] == "row 14 of t.csv: its split is train, and test in row 15 of t.csv"
    assert left_out(listing) == (
        "10 of 17 objects are left out: 1 of a dropped class, "
        "1 outside of their image (first row 10 of t.csv), "
        "1 with edges in the wrong order (first row 8 of t.csv), 5 without a box of four numbers "
        "(first row 3 of t.csv), 1 without a class (first row 11 of t.csv), "
        "1 without an area (first row 9 of t.csv); correct these rows; if they are many, "
        "look at source.objects.table.box_format and box_columns"
    )


@pytest.mark.parametrize(
    ("box_format", "numbers"),
    [
        ("xyxy", (10, 5, 30, 35)),
        ("yxyx", (5, 10, 35, 30)),
        ("xywh", (10, 5, 20, 30)),
        ("cxcywh", (20, 20, 20, 30)),
    ],
)
@pytest.mark.parametrize("form", ["tsv", "jsonl", "parquet", "list.csv", "list.jsonl", "list.parquet"])
def test_every_format_of_a_box_means_the_same(
    tmp_path: Path, box_format: str, numbers: tuple[int, ...], form: str
) -> None:
    names = ["one", "two", "three", "four"]
    row: dict[str, Any] = {"path": "a.jpg", "label": "cat"}
    row |= {"box": list(numbers)} if "list" in form else dict(zip(names, numbers, strict=True))
    file = tmp_path / f"t.{form}"
    if form.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist([row]), file)
    elif form.endswith("jsonl"):
        file.write_text(json.dumps(row))
    else:
        mark = "\t" if form == "tsv" else ","
        cells = [f'"{value}"' if isinstance(value, list) else str(value) for value in row.values()]
        file.write_text(f"{mark.join(row)}\n{mark.join(cells)}\n")
    columns = ["box"] if "list" in form else names
    config = configured(file.name, {"box_columns": columns, "box_format": box_format})
    assert objects(listed(tmp_path, config, "a.jpg"), "a.jpg")[:2] == ([5, 10, 35, 30], ["cat"])


IMAGES: list[dict[str, Any]] = [
    {"path": "a.jpg", "label": ["cat", "dog"], "box": [[1, 2, 3, 4], [5, 6, 7, 8]], "crowd": [0, 1]},
    {"path": "b.jpg", "label": [], "box": [], "crowd": []},
    {"path": "c.jpg", "label": ["cat"], "box": [[1, 2, 3, 4], [5, 6, 7, 8]], "crowd": []},
    {"path": "d.jpg", "label": ["cat", "", "dog"], "box": [[1, 2, 3], [1, 2, 3, 4], [9, 6, 7, 8]]},
    {"path": "e.jpg", "label": None, "box": None},
    {"path": "a.jpg", "label": ["cat", "dog"], "box": [[1, 2, 3, 4], [5, 6, 7, 8]], "crowd": [0, 1]},
    {"path": "f.jpg", "label": ["cat"], "box": [[1, 2, 3, 4]], "crowd": None},
    {"path": "f.jpg", "label": ["cat"], "box": [[1, 2, 3, 5]], "crowd": None},
]  # fmt: skip


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_row_may_be_an_image_with_lists(tmp_path: Path, form: str) -> None:
    if form == "jsonl":
        (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in IMAGES))
    else:
        pq.write_table(pa.Table.from_pylist(IMAGES), tmp_path / "t.parquet")
    (tmp_path / "all.txt").write_text("a.jpg\n\ng\n")
    config = configured(
        {"file": f"t.{form}", "image_list": "all.txt"}, {"box_columns": "box", "crowd_column": "crowd"}
    )
    listing = listed(tmp_path, config, *(f"{name}.jpg" for name in "abcdefg"))
    assert outcomes(listing) == {
        **{f"{name}.jpg": (READ, None) for name in "abdeg"},
        "c.jpg": (FILTERED, "not_in_table"),
        "f.jpg": (LOST, "contradicting_rows"),
        f"t.{form}#row=8": (LOST, "contradicting_rows"),
        f"t.{form}#row=3": (LOST, "broken_row"),
        f"t.{form}#row=6": (FILTERED, "repeated_row"),
        f"t.{form}": (FILTERED, "table"),
        "all.txt": (FILTERED, "table"),
    }
    assert objects(listing, "a.jpg")[:4] == ([2, 1, 4, 3, 6, 5, 8, 7], ["cat", "dog"], [0, 1], 0)
    assert objects(listing, "d.jpg")[:4] == ([], [], [], 3)
    assert objects(listing, "e.jpg")[:4] == ([], [], [], 0)


@pytest.mark.parametrize(
    ("text", "table", "fault", "remedy"),
    [
        (
            "path,label,xmin,ymin,xmax\na,c,1,2,3\n",
            {},
            "no column 'ymax'",
            "source.objects.table.box_columns",
        ),
        ("file,label,xmin,ymin,xmax,ymax\n", {}, "no column 'path'", "source.columns.image"),
        ("path,label,xmin,ymin,xmax,ymax\na,c,0,0,1,.5\n", {}, "within 0 and 1", "units=relative"),
        (
            "path,label,xmin,ymin,xmax,ymax\na,c,0,0,9,9\n",
            {"units": "relative"},
            "1 of 1 boxes of t.csv reach beyond 2",
            "units=pixels",
        ),
        (
            "path,label,xmin,ymin,xmax,ymax\na,\xff,0,0,9,9\n",
            {},
            "not utf-8",
            "source.table.encoding",
        ),
    ],
)
def test_a_table_that_the_settings_do_not_fit_is_refused_with_a_remedy(
    tmp_path: Path, text: str, table: dict[str, Any], fault: str, remedy: str
) -> None:
    (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=fault) as caught:
        listed(tmp_path, configured("t.csv", table), "a.jpg")
    assert remedy in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("labels", "fault"),
    [
        ("red car", "its boxes or its classes are no list"),
        (["car"], "it has 2 boxes and 1 classes"),
        (["red", "car"], "it has 2 boxes and 1 values of crowds"),
    ],
)
def test_lists_that_do_not_fit_each_other_are_said(tmp_path: Path, labels: Any, fault: str) -> None:
    row = {"path": "a.jpg", "label": labels, "box": [[1, 2, 3, 4], [5, 6, 7, 8]], "crowd": [0]}
    (tmp_path / "t.jsonl").write_text(
        json.dumps({"path": "b.jpg", "box": [], "label": []}) + "\n" + json.dumps(row)
    )
    config = configured("t.jsonl", {"box_columns": "box", "crowd_column": "crowd"})
    rows = {row["uri"]: row for row in listed(tmp_path, config, "a.jpg", "b.jpg").table.to_pylist()}
    assert rows["t.jsonl#row=2"]["message"] == f"row 2 of t.jsonl: {fault}"


def test_labels_without_a_name_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,label,xmin,ymin,xmax,ymax\na,/m/1,1,2,3,4\na,/m/2,1,2,3,4\n")
    (tmp_path / "names.csv").write_text('/m/1,"Hat, high"\n\n')
    listing = listed(tmp_path, configured("t.csv", {"names_file": "names.csv"}), "a.jpg")
    assert objects(listing, "a.jpg")[1] == ["Hat, high", "/m/2"]
    assert "source.objects.table.names_file has no name for 1 label, such as '/m/2'" in listing.warnings
    (tmp_path / "names.csv").write_text("/m/1\n")
    with pytest.raises(ConfigError, match=r"names\.csv has a line that is not label,name: '/m/1'"):
        listed(tmp_path, configured("t.csv", {"names_file": "names.csv"}), "a.jpg")


def test_a_table_without_a_single_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,label,xmin,ymin,xmax,ymax\na,c,1,2,3,4\n")
    with pytest.raises(NotFoundError) as caught:
        listed(tmp_path, configured("t.csv", {}), "photos/a.jpg")
    assert "source.objects.annotations" in str(caught.value.remedy)


@pytest.mark.parametrize(
    "objects_of",
    [
        {"table": {"box_columns": ["a", "b"]}},
        {"table": {"size_columns": ["a"]}},
        {"table": {"delimiter": ",,"}},
        {"table": {"encoding": "klingon"}},
        {"image_sets": "sets"},
    ],
)
def test_settings_that_fit_no_table_of_boxes_are_refused(objects_of: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        configured("t.csv", objects_of.pop("table", {}), **objects_of)
    for table in ({"table": {"units": "relative"}}, {"annotations": [{"file": "t", "image_list": "l"}]}):
        source = {"kind": "coco", "objects": {"annotations": "t.json", **table}}
        with pytest.raises(ValidationError, match="box_table"):
            PrepareConfig.model_validate({"source": source})


def test_other_kinds_keep_the_digests_of_their_settings() -> None:
    coco = {"kind": "coco", "objects": {"annotations": "t.json"}}
    settings = PrepareConfig.model_validate({"source": coco}).source.effective()["objects"]
    assert settings == {
        "annotations": [{"file": "t.json", "images": "", "split": None}],
        "coordinates": "stored",
        "drop_labels": [],
        "merge_labels": {},
    }


def test_the_tables_of_open_images_are_recognised(tmp_path: Path) -> None:
    source = with_images(tmp_path, "train/a1.jpg", "val/b2.jpg")
    for name, image in (("train", "a1"), ("validation", "b2")):
        text = f"{OPEN_IMAGES}\n{image},xclick,/m/0cmf2,1,0.1,0.2,0.3,0.4,0,0,0,0,0\n"
        (tmp_path / f"{name}-annotations-bbox.csv").write_text(text)
    found = recognise(glance_at(source), PrepareConfig().source)
    assert list(found) == ["box_table"]
    settings = validate(
        PrepareConfig, {"source": {"kind": "box_table", **found["box_table"].settings}}, where="found"
    ).source
    assert [(part.images, part.split) for part in settings.objects.annotations] == [
        ("train", "train"),
        ("val", "validation"),
    ]
    assert settings.objects.table == configured("t", OPEN_IMAGES_TABLE).source.objects.table


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_table_with_edges_is_recognised_before_one_of_labels(tmp_path: Path, form: str) -> None:
    source = with_images(tmp_path, "images/a.jpg")
    row = {"filename": "a.jpg", "width": 80, "height": 40, "class": "cat", "xmin": 1.5, "ymin": 2.5}
    row |= {"xmax": 3.5, "ymax": 4.5}
    if form == "csv":
        text = f"{','.join(row)}\n{','.join(map(str, row.values()))}\n"
        (tmp_path / "labels.csv").write_text(text)
    else:
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / "labels.parquet")
    found = recognise(glance_at(source), PrepareConfig().source)
    assert list(found) == ["box_table"]
    table = found["box_table"].settings["objects"]["table"]
    assert found["box_table"].settings["columns"]["image"] == "filename"
    assert table["size_columns"] == ("height", "width")


def test_masks_of_open_images_become_polygons(tmp_path: Path) -> None:
    mask = np.zeros((20, 28), np.uint8)
    mask[4:10, 7:14] = 255
    header = "MaskPath,ImageID,LabelName,BoxID,BoxXMin,BoxXMax,BoxYMin,BoxYMax,PredictedIoU,Clicks\n"
    names = ("a_m01_1.png", "a_m01_2.png", "gone.png", "broken.png", "")
    rows = "".join(f"{name},a,/m/01,1,0.25,0.5,0.2,0.5,0.9,\n" for name in names)
    with_images(tmp_path, "validation/a.jpg", "masks/0/broken.png", "masks/0/other.png")
    for name in names[:2]:
        Image.fromarray(mask).save(tmp_path / "masks/0" / name)
    (tmp_path / "validation-annotations-object-segmentation.csv").write_text(header + rows)
    request = settled(asked(tmp_path))
    listing = list_inputs(open_source(request), request.config)
    found = objects_of(listing, "validation/a.jpg")
    assert [len(one["rings"]) for one in found] == [1, 1, 0, 0, 0]
    corners = np.array([[4 / 20, 7 / 28], [10 / 20, 14 / 28]])
    ring = found[0]["rings"][0]
    np.testing.assert_allclose([ring.min(0), ring.max(0)], corners, rtol=1e-6)
    assert outcomes(listing)["masks/0/a_m01_1.png"] == (Status.FILTERED, "table")
    assert outcomes(listing)["masks/0/other.png"] == (Status.FILTERED, "not_in_table")
    (warning,) = (text for text in listing.warnings if "mask" in text)
    assert warning.startswith("2 masks left out: 1 that cannot be read (first row 4 of ")
    assert "1 whose file is not there (first row 3 of " in warning
