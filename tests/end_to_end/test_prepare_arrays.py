"""Datasets from arrays in memory: the function, what it refuses, and what it leaves behind."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_jobs import prepare_arrays
from beam_jobs.sources.rows.png import stored_png
from infra.dataset.catalog import Catalog
from infra.errors import ConfigError, UsageError
from tests.samples.prepared import rows

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
