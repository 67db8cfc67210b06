"""Curves and tables of a training, from the points of its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from shardmill.flows.flow_runs.showing import training_curve
from shardmill.flows.flow_runs.showing.live import curve_text
from shardmill.training.results.run_files.curve import CURVE_FILE

POINTS: list[dict[str, Any]] = [
    {"split": "train", "epoch": 1, "step": 1, "loss": 2.0, "accuracy": 0.2, "learning_rate": 0.1},
    {"split": "validation", "epoch": 1, "step": 1, "loss": 2.5, "accuracy": 0.4, "macro_f1": 0.3},
    {"split": "train", "epoch": 2, "step": 2, "loss": float("nan"), "images_per_second": 1234.5},
    {"split": "train", "epoch": 2, "step": 3, "loss": 1.0, "accuracy": 0.6, "memory_process_bytes": 1 << 30},
]
RANKS: list[dict[str, Any]] = [
    {
        "rank": rank,
        "device": "cpu <1>",
        "step": step,
        "share": 0.5,
        "step_seconds": 0.1,
        "input_wait_fraction": 0.25,
        "waiting_seconds": None if rank else 0.01,
        "memory_process_bytes": 1 << 30,
    }
    for step in (2, 4)
    for rank in (0, 1)
]


def test_curves_are_of_finite_figures() -> None:
    assert training_curve.series_of(POINTS, "loss") == {
        "train": [(1, 2.0), (3, 1.0)],
        "validation": [(1, 2.5)],
    }
    assert training_curve.series_of(POINTS, "macro_f1") == {"validation": [(1, 0.3)]}


@pytest.mark.parametrize(
    "figure", ["accuracy", "mean_average_precision", "r2", "average_precision", "mean_iou"]
)
def test_the_main_figure_of_each_task_has_a_curve(figure: str) -> None:
    points = [{"split": "validation", "step": 1, "loss": 2.5, figure: 0.4}]
    assert training_curve.main_name(points) == figure


def test_a_long_line_is_thinned_and_keeps_its_newest_point() -> None:
    points = [{"split": "train", "step": step, "loss": 1.0} for step in range(1, 100_001)]
    line = training_curve.series_of(points, "loss")["train"]
    assert 100 < len(line) <= 201
    assert line[-1][0] == 100_000


def test_pictures_are_whole_svg_and_escaped() -> None:
    for svg in (
        training_curve.quality_svg("<b>", POINTS),
        training_curve.speed_svg("s", POINTS),
        training_curve.ranks_svg("r", RANKS),
    ):
        assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert "nan" not in svg
    assert training_curve.ranks_svg("r", POINTS) == ""


def test_the_newest_figures_of_splits_and_ranks() -> None:
    train, validation = training_curve.latest_rows(POINTS)
    assert (train["step"], train["loss"], train["accuracy"], train["memory (GiB)"]) == (3, 1.0, 0.6, 1.0)
    assert validation["accuracy"] == 0.4
    first, second = training_curve.rank_rows(RANKS)
    assert (first["rank"], first["step"], first["step (ms)"], first["share (%)"]) == (0, 4, 100.0, 50.0)
    assert first["waiting for other ranks (ms)"] == 10.0
    assert second["waiting for other ranks (ms)"] is None


def test_the_page_of_a_curve_has_ranks_where_there_are_some() -> None:
    assert "Ranks" not in curve_text(POINTS)
    text = curve_text([*POINTS, *RANKS])
    assert text.count("](data:image/svg+xml;base64,") == 2
    assert "cpu &lt;1&gt;" in text


def test_a_run_of_an_earlier_release_has_a_point_an_epoch(tmp_path: Path) -> None:
    row = {"epoch": 1, "step": 9, "train_loss": 0.5, "validation_loss": 0.6, "validation_accuracy": 0.7}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    assert [dict(point) for point in training_curve.points_of(tmp_path)] == [
        {"split": "train", "epoch": 1, "step": 9, "loss": 0.5},
        {"split": "validation", "epoch": 1, "step": 9, "loss": 0.6, "accuracy": 0.7},
    ]
    (tmp_path / CURVE_FILE).write_text('{"split": "train", "step": 1, "loss": 1}\n')
    assert [point["step"] for point in training_curve.points_of(tmp_path)] == [1]
