"""The text of the artifacts, before Prefect gets them."""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.flow_runs import artifacts

TRAINED = {
    "epochs": 2,
    "steps": 40,
    "metrics": {
        "test": {
            "accuracy": 0.9,
            "loss": 0.3,
            "per_class": {"cat": {"accuracy": 0.8}, "dog": {"accuracy": 1.0}},
        }
    },
}


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        (("photos", "class-balance"), "photos-class-balance"),
        (("My_Photos.v2", "progress"), "my-photos-v2-progress"),
        (("-x-", "y"), "x-y"),
    ],
)
def test_keys_are_what_prefect_allows(parts: tuple[str, ...], key: str) -> None:
    assert artifacts.artifact_key(*parts) == key


def test_accounting_names_every_outcome() -> None:
    counts = {
        "num_records": 5,
        "num_duplicates": 1,
        "num_filtered": 2,
        "num_quarantined": 3,
        "num_inputs": 11,
    }
    rows = {row["outcome"]: row["inputs"] for row in artifacts.accounting_rows(counts)}
    assert rows.pop("all inputs") == sum(rows.values())


def test_shards_show_how_even_they_are() -> None:
    shards = [SimpleNamespace(num_examples=count, num_bytes=10) for count in (7, 8, 7)]
    (row,) = artifacts.shard_rows({"train": shards})
    assert (row["examples"], row["shards"], row["smallest shard"], row["largest shard"]) == (22, 3, 7, 8)
    assert row["bytes"] == 30


def test_curves_are_of_the_figures_that_have_a_step() -> None:
    metrics = [
        {"split": "train", "step": 1, "loss": 2.0},
        {"split": "validation", "step": 1, "loss": 2.5, "accuracy": 0.4},
        {"split": "train", "step": 2, "loss": 1.0},
        {"split": "test", "loss": 0.5, "final": True},
    ]
    assert artifacts.curve(metrics, "loss") == {"train": [(1, 2.0), (2, 1.0)], "validation": [(1, 2.5)]}
    assert artifacts.curve(metrics, "accuracy") == {"validation": [(1, 0.4)]}


@pytest.mark.parametrize(
    "figure", ["accuracy", "mean_average_precision", "r2", "average_precision", "mean_iou"]
)
def test_the_main_figure_of_each_task_has_a_curve(figure: str) -> None:
    metrics = [{"split": "validation", "step": 1, "loss": 2.5, figure: 0.4, "pixel_accuracy": 0.1}]
    assert set(artifacts.curves(metrics)) == {"loss", figure}


def test_final_figures_are_numbers_only() -> None:
    rows = artifacts.figure_rows(TRAINED)
    assert {"split": "test", "figure": "accuracy", "value": 0.9} in rows
    assert {"split": "", "figure": "steps", "value": 40} in rows
    assert all(isinstance(row["value"], int | float) for row in rows)


def test_old_news_say_how_old_they_are() -> None:
    now = time.monotonic()
    assert artifacts.with_age(50.0, "encode: 1 of 2 images", now) == (50.0, "encode: 1 of 2 images")
    percent, text = artifacts.with_age(50.0, "encode: 1 of 2 images", now - 42)
    assert percent == 50.0
    assert re.fullmatch(r"encode: 1 of 2 images \(4\d s ago\)", text)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.6931471805599453, 0.6931), (1234.5678, 1235), (40, 40), (1e-7 / 3, 3.333e-08)]
)
def test_figures_have_few_digits(value: float, shown: float) -> None:
    (row,) = artifacts.figure_rows({"metrics": {"test": {"loss": value}}})
    assert row["value"] == shown
    (row,) = artifacts.per_class_rows({"metrics": {"test": {"per_class": {"cat": {"recall": value}}}}})
    assert row["recall"] == shown


def test_per_class_figures_have_a_row_each() -> None:
    assert artifacts.per_class_rows(TRAINED) == [
        {"split": "test", "class": "cat", "accuracy": 0.8},
        {"split": "test", "class": "dog", "accuracy": 1.0},
    ]


def test_places_link_files_and_name_what_is_no_file(tmp_path: Path) -> None:
    text = artifacts.places_text(
        "photos@1", {"Report": str(tmp_path / "r.html"), "Bucket": "s3://b/m", "None": None}, "c"
    )
    assert f"[{tmp_path}/r.html]({(tmp_path / 'r.html').as_uri()})" in text
    assert "`s3://b/m`" in text
    assert "None" not in text
