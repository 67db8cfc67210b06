"""Datasets from arrays in memory: the function, what it refuses, and what it leaves behind."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill import open_dataset, prepare_arrays
from shardmill.beam_jobs.sources.kinds.arrays.reading import stored_png
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import ConfigError, UsageError
from tests.samples.preparing.prepared import rows

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 8, 9, 3), dtype=np.uint8)
LABELS = np.arange(20) % 2
LOSSLESS = {"image": {"resize": "none", "encoding": "png"}, "runner": {"processes": 1}}


def test_arrays_become_a_dataset_and_nothing_else_is_left(tmp_path: Path) -> None:
    images = {"train": PIXELS[:14], "test": PIXELS[14:]}
    labels = {"train": LABELS[:14, None], "test": LABELS[14:, None]}
    options: dict[str, Any] = {
        "dataset": "small", "root": tmp_path, "class_names": ["cat", "dog"], "settings": LOSSLESS
    }  # fmt: skip
    outcome = prepare_arrays(images, labels, **options)
    assert (outcome["version"], outcome["num_records"], outcome["classes"]) == (1, 20, ["cat", "dog"])
    assert outcome["splits"]["train"]["num_examples"] == 14
    assert not list((tmp_path / ".arrays").rglob("*.npy"))
    assert Catalog(str(tmp_path)).datasets() == ["small"]
    found = [row for row in rows(Catalog(str(tmp_path)).open("small")).values() if row["record_id"]]
    assert all("images-" in row["uri"] for row in found)
    digests = {hashlib.sha256(stored_png(image)).hexdigest() for image in PIXELS}
    assert {row["sha256"] for row in found} == digests
    assert prepare_arrays(images, labels, **options)["unchanged"]


def test_more_classes_are_named_than_an_argument_of_a_command_holds(tmp_path: Path) -> None:
    names = [f"--Plantae Tracheophyta Magnoliopsida Übung {number:05d}" for number in range(10_000)]
    outcome = prepare_arrays(
        PIXELS, LABELS + 9_998, dataset="small", root=tmp_path, class_names=names, settings=LOSSLESS
    )
    assert outcome["classes"] == names[-2:]


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ({"images": PIXELS / 255}, ConfigError, "'images' in the arrays are float64, not uint8"),
        ({"labels": LABELS[:5]}, ConfigError, r"shape \[5\], but there are 20 images"),
        ({"labels": np.array(["a", None] * 10, object)}, ConfigError, "labels are Python objects"),
        ({"labels": {"train": LABELS}}, UsageError, "not given for the same splits"),
        ({"images": {"a": PIXELS}, "labels": {"a": LABELS}}, UsageError, "'a' is no split"),
        ({"settings": {"source": {"kind": "table"}}}, UsageError, "settings hold 'source'"),
        ({"settings": {"image": {"sise": 3}}}, ConfigError, "sise. in settings"),
        ({"dataset": "../x"}, ConfigError, "cannot be used"),
        ({"splits": LABELS[:3]}, ConfigError, r"shape \[3\], but there are 20 images"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    tmp_path: Path, arrays: dict[str, Any], error: type[Exception], message: str
) -> None:
    given = {"images": PIXELS, "labels": LABELS, "dataset": "small", "root": tmp_path, **arrays}
    with pytest.raises(error, match=message):
        prepare_arrays(**given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "labels", "wanted"),
    [
        (
            {"label_kind": "multi", "class_names": ["indoors", "people", "night"]},
            np.eye(3, dtype=np.int8)[np.arange(20) % 3],
            np.eye(3)[:, [0, 2, 1]],  # classes are sorted by name
        ),
        ({"label_kind": "targets"}, np.arange(20) % 3 / 4, np.array([[0], [0.25], [0.5]])),
        ({}, None, np.full(3, -1)),
    ],
    ids=["multi", "targets", "none"],
)
def test_other_labels_and_features_are_read_back(
    tmp_path: Path, options: dict[str, Any], labels: Any, wanted: Any
) -> None:
    captions = [f"the number {number}" for number in range(20)]
    given: dict[str, Any] = {
        "dataset": "small",
        "root": tmp_path,
        "features": {"caption": captions, "place": np.arange(40, dtype=np.float32).reshape(20, 2)},
        "splits": ["train"] * 15 + ["test"] * 5,
        "settings": LOSSLESS,
        **options,
    }
    assert prepare_arrays(PIXELS, labels, **given)["num_records"] == 20
    assert prepare_arrays(PIXELS, labels, **given)["unchanged"]
    dataset = open_dataset("small", root=tmp_path)
    assert dataset.label_kind == options.get("label_kind", "none")
    found = 0
    for split, count in (("train", 15), ("test", 5)):
        (batch,) = dataset.batches(
            split, batch_size=20, image_size=None, training=False, features=["caption", "place"]
        )
        assert len(batch.labels) == count
        for image, label, caption, place in zip(
            batch.images, batch.labels, batch.features["caption"], batch.features["place"], strict=True
        ):
            number = int(caption.split()[-1])
            assert np.array_equal(image, PIXELS[number])
            assert np.allclose(label, wanted[number % 3])
            assert place.tolist() == [2 * number, 2 * number + 1]
            found += 1
    assert found == 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_kind": "none"}, "labels are given"),
        ({"labels": None, "label_kind": "multi"}, "labels are missing"),
        ({"lable_kind": "multi"}, "unknown argument 'lable_kind'"),
        ({"features": {"caption": {"train": ["a"]}}}, "not given for the same splits"),
    ],
)
def test_arguments_that_contradict_each_other(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        prepare_arrays(
            **{"images": PIXELS, "labels": LABELS, "dataset": "small", "root": tmp_path, **options}
        )
    assert not list(tmp_path.iterdir())
