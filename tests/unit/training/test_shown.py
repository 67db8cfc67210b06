"""What a notebook shows of a dataset and of a batch: the right pictures, names and counts."""

from __future__ import annotations

import base64
import html
import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import shardmill
from shardmill import Dataset, UsageError, open_dataset, show_batch
from shardmill.infra.storage.range_reader import RangeReader
from tests.samples.datasets.published import coloured, publish, publish_patterned
from tests.samples.images.drawn_objects import SHAPES, draw_objects, objects_config
from tests.samples.images.masks import config as masks_config
from tests.samples.images.masks import make_masked
from tests.samples.preparing.prepared import run as prepare

HOSTILE = "<script>alert(1)</script>\u202e"
JPEG_ERROR = 3  # grey levels of the mean; a picture in a page is a JPEG


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("datasets")
    counts = {"train": {"red": 20, HOSTILE: 9, "猫": 4}, "test": {"red": 3}}
    publish(folder, coloured(counts), name="set")
    publish(folder, coloured({"train": {f"class {n:02}": 1 + n // 20 for n in range(21)}}), name="many")
    publish(folder, coloured({"train": {"red": 8}}), classes=[], name="unlabelled")
    publish_patterned(folder, {"train": 8}, several=True, name="several")
    publish_patterned(folder, {"train": 8}, several=False, name="numbers")
    street = draw_objects(folder / "street", {"train": 8}, seed=3)
    prepare(street, folder / "boxes", **objects_config(["train"]))
    prepare(make_masked(folder / "masked", 6), folder / "masks", **masks_config())
    return folder


@pytest.fixture(scope="module")
def opened(root: Path) -> Callable[[str], Dataset]:
    places = {"boxes": ("d", root / "boxes"), "masks": ("d", root / "masks")}
    return lambda name: open_dataset(*places.get(name, (name, root)))


def pictures_in(page: str) -> list[np.ndarray[Any, Any]]:
    """The pictures of a page, uint8 [h, w, 3] each."""
    found = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', page)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(one))).convert("RGB")) for one in found]


def rows_in(page: str) -> dict[str, list[str]]:
    """The rows of the table: the first cell -> the others."""
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", page)]
    return {
        html.unescape(name): [re.sub("<[^>]*>", "", cell).strip() for cell in rest] for name, *rest in rows
    }


# -- a dataset ---------------------------------------------------------------------------------------------


def test_a_dataset_shows_its_counts_and_pictures_of_each_class(opened: Callable[[str], Dataset]) -> None:
    page = opened("set")._repr_html_()
    assert rows_in(page) == {
        "": ["■ train", "■ test"],
        "records": ["33", "3"],
        "red": ["20", "3", ""],
        HOSTILE.replace("\u202e", "\\u202e"): ["9", "0", ""],
        "猫": ["4", "0", ""],
    }
    assert len(pictures_in(page)) == 12
    captions = [html.unescape(one) for one in re.findall(r"<figcaption[^>]*>(.*?)<", page)]
    assert captions[:3] == ["<script>alert(1)</script>\\u202e", "red", "猫"]
    assert "<script" not in page
    assert len(page) < 100_000


def test_a_picture_of_a_dataset_is_the_stored_one(tmp_path: Path) -> None:
    pictures = coloured({"train": {"red": 1, "blue": 1}}, size=(112, 140))
    publish(tmp_path, pictures, encoding="png")
    shown = pictures_in(open_dataset("sample", tmp_path)._repr_html_())
    for one, picture in zip(shown, sorted(pictures, key=lambda one: one.label_name), strict=True):
        assert np.abs(one.mean((0, 1)) - picture.pixels.mean((0, 1))).max() < JPEG_ERROR
        assert one.shape == picture.pixels.shape


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("several", "several labels an image"),
        ("numbers", "numbers"),
        ("unlabelled", "no labels"),
        ("boxes", "objects in images"),
        ("masks", "a mask of classes for each image"),
    ],
)
def test_every_kind_of_labels_is_shown(opened: Callable[[str], Dataset], name: str, words: str) -> None:
    page = opened(name)._repr_html_()
    assert words in page
    assert "no picture" not in page
    assert len(pictures_in(page)) == len(opened(name))


def test_a_view_shows_its_own_records(opened: Callable[[str], Dataset]) -> None:
    page = opened("set").query("label == '猫'")._repr_html_()
    assert rows_in(page)["records"] == ["4"]
    assert len(pictures_in(page)) == 4
    assert "no records" in opened("set").query("width > 5000")._repr_html_()


def test_of_many_classes_the_largest_are_listed(opened: Callable[[str], Dataset]) -> None:
    page = opened("many")._repr_html_()
    assert list(rows_in(page))[2] == "class 20"
    assert len(rows_in(page)) == 2 + 12
    assert "and 9 other classes; the smallest, class 19, has 1" in page


@pytest.mark.parametrize("gone", ["tfrecord.gz", "parquet"])
def test_what_cannot_be_read_is_said_in_words(tmp_path: Path, gone: str) -> None:
    publish(tmp_path, coloured({"train": {"red": 6}}))
    dataset, view = open_dataset("sample", tmp_path), open_dataset("sample?label == 'red'", tmp_path)
    for number, path in enumerate(sorted(tmp_path.rglob(f"*.{gone}"))):
        path.write_bytes(b"nothing") if number else path.unlink()
    page = dataset._repr_html_()
    assert rows_in(page)["records"] == ["6"], "the manifest has the counts"
    assert pictures_in(page) == []
    assert f".{gone}" in page
    assert page.count("no picture") == (6 if gone == "tfrecord.gz" else 2)
    assert f".{gone}" in view._repr_html_()


def test_few_records_are_read(opened: Callable[[str], Dataset], monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    plain = RangeReader.read

    def counted(self: RangeReader, path: str, offset: int, length: int) -> bytes:
        read.append(path)
        return plain(self, path, offset, length)

    monkeypatch.setattr(RangeReader, "read", counted)
    opened("set")._repr_html_()
    assert len(read) == 12


# -- a batch -----------------------------------------------------------------------------------------------


def stored(dataset: Dataset, **options: Any) -> Any:
    return next(iter(dataset.batches("train", training=False, batch_size=6, image_size=168, **options)))


@pytest.fixture(scope="module")
def batch(opened: Callable[[str], Dataset]) -> Any:
    return stored(opened("set"))


def test_a_batch_is_shown_as_it_is(opened: Callable[[str], Dataset], batch: Any) -> None:
    found = show_batch(batch, opened("set"))
    names = opened("set").classes
    assert [cell.caption for cell in found.cells] == [(names[label],) for label in batch.labels.tolist()]
    assert all(
        np.array_equal(cell.pixels, image) for cell, image in zip(found.cells, batch.images, strict=True)
    )
    assert found.title == "batch of epoch 0, step 0: 6 examples"
    for shown, image in zip(pictures_in(found._repr_html_()), batch.images, strict=True):
        assert shown.shape == (112, 112, 3)
        assert np.abs(shown.mean((0, 1)) - image.mean((0, 1))).max() < JPEG_ERROR
    assert "<script" not in show_batch(batch, classes=[HOSTILE] * 3)._repr_html_()


def as_floats(images: Any) -> Any:
    return (images / np.float32(255)).astype(np.float32)


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FORMS: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "pair": (lambda b: (b.images, b.labels), {}),
    "list": (lambda b: [b.images, b.labels], {}),
    "with weights": (lambda b: (b.images, b.labels, b.weights), {}),
    "dict": (lambda b: {"image": b.images, "label": b.labels}, {}),
    "of Grain": (
        lambda b: {
            "image": b.images,
            "label": b.labels,
            "weight": b.weights,
            "size": b.sizes,
            "features": {},
        },
        {},
    ),
    "dict and labels": (lambda b: ({"image": b.images, "image_size": b.sizes}, b.labels), {}),
    "channels first": (lambda b: (b.images.transpose(0, 3, 1, 2), b.labels), {}),
    "list of images": (lambda b: (list(b.images), b.labels), {}),
    "0 to 1": (lambda b: (as_floats(b.images), b.labels), {}),
    "-1 to 1": (lambda b: (as_floats(b.images) * 2 - 1, b.labels), {"value_range": (-1, 1)}),
    "0 to 255": (lambda b: (b.images.astype(np.float16), b.labels), {"value_range": (0, 255)}),
    "white to black": (lambda b: (1 - as_floats(b.images), b.labels), {"value_range": [1.0, 0.0]}),
    "whole numbers": (lambda b: (b.images.astype(np.int32), b.labels), {}),
    "normalised": (
        lambda b: (((as_floats(b.images) - MEAN) / STD).astype(np.float32), b.labels),
        {"mean": MEAN, "std": STD},
    ),
    "one-hot": (lambda b: (b.images, np.eye(3, dtype=np.float32)[b.labels]), {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_batch_shows_the_same(
    opened: Callable[[str], Dataset], batch: Any, form: str
) -> None:
    make, options = FORMS[form]
    dataset, found = opened("set"), show_batch(make(batch), opened("set"), **options)
    for cell, image, label in zip(found.cells, batch.images, batch.labels.tolist(), strict=True):
        assert cell.caption == (dataset.classes[label],)
        assert np.abs(cell.pixels.astype(int) - image).max() <= (1 if "floats" in form or options else 0)


def test_tensors_of_tensorflow_show_the_same(opened: Callable[[str], Dataset], batch: Any) -> None:
    tf = pytest.importorskip("tensorflow")
    pairs = opened("set").tf("train", training=False, batch_size=6, image_size=168)
    expected = show_batch(batch, opened("set"))
    for found in (next(iter(pairs)), (tf.cast(batch.images, tf.bfloat16) / 256, batch.labels)):
        shown = show_batch(found, opened("set"))
        assert [cell.caption for cell in shown.cells] == [cell.caption for cell in expected.cells]
        for one, other in zip(shown.cells, expected.cells, strict=True):
            assert np.abs(one.pixels.astype(int) - other.pixels).max() <= 2  # bfloat16 has 8 bits
    boxes = opened("boxes")
    names = ["objects/bbox", "objects/label"]
    ragged = next(iter(boxes.tf("train", training=False, batch_size=6, image_size=168, features=names)))
    wanted = show_batch(stored(boxes, features=names), boxes)
    assert [cell.caption for cell in show_batch(ragged, boxes).cells] == [c.caption for c in wanted.cells]


def test_boxes_are_drawn_where_they_are(opened: Callable[[str], Dataset]) -> None:
    dataset = opened("boxes")
    options = {"features": ["objects/bbox", "objects/label"], "image_size": None}
    batch = next(iter(dataset.batches("train", training=False, batch_size=8, **options)))
    found = show_batch(batch, dataset)
    values, lengths = batch.features["objects/bbox"]
    plain = show_batch((batch.images, None), dataset)
    assert any(lengths)
    for row, (drawn, bare) in enumerate(zip(found.cells, plain.cells, strict=True)):
        height, width = bare.pixels.shape[:2]
        inside = np.zeros((height, width), bool)
        for top, left, bottom, right in values[row][: lengths[row]].reshape(-1, 4):
            y, x = (np.clip(np.arange(n), 0, n - 1) / n for n in (height, width))
            near = 3 / height
            inside |= ((y >= top - near) & (y <= bottom + near))[:, None] & (
                (x >= left - near) & (x <= right + near)
            )[None]
        changed = (drawn.pixels != bare.pixels).any(axis=2)
        assert not (changed & ~inside).any()
        assert changed.any() == bool(lengths[row])
        classes = {name for name in SHAPES if name in drawn.caption[0]}
        assert classes == {
            dataset.classes[n] for n in batch.features["objects/label"].values[row][: lengths[row] // 4]
        }


def test_masks_are_laid_over_their_images(opened: Callable[[str], Dataset]) -> None:
    dataset = opened("masks")
    batch = next(iter(dataset.batches("train", training=False, batch_size=4, image_size=None)))
    found = show_batch(batch, dataset)
    for row, cell in enumerate(found.cells):
        height, width = batch.sizes[row].tolist()
        mask = batch.labels[row, :height, :width]
        classes = sorted({dataset.classes[n] for n in np.unique(mask[mask != 255])})
        assert sorted(cell.caption[0].split(", ")) == classes
        assert cell.pixels.shape[0] / cell.pixels.shape[1] == pytest.approx(height / width, abs=0.02)
    without_names = show_batch((batch.images, batch.labels))
    assert without_names.cells[0].caption[0].replace(", ", "").isdigit()


@pytest.mark.parametrize(
    ("labels", "options", "caption"),
    [
        (np.array([[0.7, 0.3, 0]]), {"classes": ["a", "b", "c"]}, "a 70%, b 30%"),
        (np.array([[0, 1, 1.0]]), {"classes": ["a", "b", "c"]}, "b, c"),
        (np.array([[0, 0, 0.0]]), {"classes": ["a", "b", "c"]}, "none"),
        (np.array([[0.5, 12345.6]]), {}, "0.5, 12,346"),
        (np.array([[np.nan]]), {}, "nan"),
        (np.array([-1]), {"classes": ["a"]}, "no label"),
        (np.array([3]), {"classes": ["a"]}, "class 3, which has no name"),
        (np.array([3]), {}, "3"),
        (np.array([b"caf\xc3\xa9"]), {}, "café"),
        (np.array([2.5]), {}, "2.5"),
        (None, {}, ""),
    ],
)
def test_labels_in_words(labels: Any, options: dict[str, Any], caption: str) -> None:
    found = show_batch((np.zeros((1, 4, 4, 3), np.uint8), labels), **options)
    assert found.cells[0].caption == (caption,)


def test_padding_and_values_that_are_not_finite_are_said(batch: Any) -> None:
    images = as_floats(batch.images[:2])
    images[1, :2, :2, 0] = np.inf
    found = show_batch((images, batch.labels[:2], np.array([0.0, 1.0])))
    assert [cell.caption[1:] for cell in found.cells] == [("padding",), ("4 values not finite, shown black",)]
    assert not found.cells[1].pixels[:2, :2, 0].any()


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (np.full((1, 4, 4, 3), 200.0), {}, r"float64 from 200 to 200.*value_range"),
    (np.full((1, 4, 4, 3), -1), {}, r"int64 from -1 to -1.*mean and std"),
    (np.full((1, 4, 4, 3), 9.0), {"value_range": (0, 1)}, r"9 to 9, lie outside"),
    (np.full((1, 4, 4, 3), 9.0), {"mean": MEAN, "std": STD}, r"lie outside"),
    (np.zeros((1, 4, 4, 1)), {"mean": MEAN, "std": STD}, r"have 3 values, and images have 1 channel"),
    (np.zeros((1, 4, 4, 3)), {"mean": 0.5}, r"give value_range alone, or mean and std"),
    (np.zeros((1, 4, 4, 3)), {"mean": 0.5, "std": 0.0}, r"std other than 0"),
    (np.zeros((1, 4, 4, 3)), {"value_range": (0, np.nan)}, r"finite"),
    (np.zeros((1, 4, 4, 3)), {"value_range": (0, 1, 2)}, r"has not two values"),
    (np.zeros((1, 4, 4, 4), np.uint8), {}, r"\[4, 4, 4\], without an axis of one or three channels"),
    (np.zeros((1, 0, 4, 3), np.uint8), {}, r"\[0, 4, 3\] has no pixels"),
    ({"image": np.zeros((4, 4, 3), np.uint8), "label": 1}, {}, r"\[4, 3\] has no pixels, or not three axes"),
    (np.zeros((4, 4, 3), np.uint8), {}, r"ndarray of the shape \[4, 4, 3\] is no batch"),
    ({"pixels": 1, "label": 2}, {}, r"'pixels', 'label' is no batch.*'images' or 'image'"),
    ((np.zeros((2, 4, 4, 3), np.uint8), [1]), {}, r"2 images have 1 labels"),
    (
        (np.zeros((1, 4, 4, 3), np.uint8), np.ones((1, 2))),
        {"classes": ["a"]},
        r"2 values, and there are 1 names",
    ),
    (iter([]), {}, r"give one batch"),
    (None, {}, r"NoneType is no batch"),
]


@pytest.mark.parametrize(("batch", "options", "words"), REFUSED)
def test_what_has_no_one_meaning_is_refused(batch: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        show_batch(batch, **options)


def test_boxes_in_pixels_are_refused() -> None:
    batch = {"image": np.zeros((1, 8, 8, 3), np.uint8), "objects/bbox": np.array([[0, 0, 5.0, 5.0]])}
    with pytest.raises(UsageError, match=r"reach from 0 to 5.*relative to the image"):
        show_batch(batch)


def test_the_pictures_are_saved(tmp_path: Path, batch: Any) -> None:
    found = show_batch(batch, classes=["a", HOSTILE, "c"], count=4)
    for name, kind in {"b.png": "PNG", "b.JPG": "JPEG", "b.webp": "WEBP"}.items():
        assert found.save(tmp_path / name) == tmp_path / name
        with Image.open(tmp_path / name) as picture:
            assert picture.format == kind
    page = found.save(tmp_path / "b.html").read_text(encoding="utf-8")
    assert len(pictures_in(page)) == 4
    with pytest.raises(UsageError, match=r"b.txt has no suffix.*\.html"):
        found.save(tmp_path / "b.txt")
    with pytest.raises(shardmill.StorageError, match="missing"):
        found.save(tmp_path / "missing" / "b.html")
    assert Image.open(io.BytesIO(found._repr_png_())).format == "PNG"
    assert show_batch(batch, count=0).cells == ()
    assert show_batch(batch, count=0)._repr_png_()


def test_no_framework_is_loaded(root: Path) -> None:
    script = (
        "import sys, shardmill\n"
        f"dataset = shardmill.open_dataset('set', {str(root)!r})\n"
        "batch = next(iter(dataset.batches('train', batch_size=4, image_size=32)))\n"
        "shardmill.show_batch(batch, dataset)._repr_html_(), dataset._repr_html_()\n"
        "print(sorted({'tensorflow', 'torch', 'prefect', 'apache_beam', 'keras'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "[]\n"
