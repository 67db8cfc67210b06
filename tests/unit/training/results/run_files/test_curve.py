"""The figures of a training while it runs, as its folder keeps them."""

from __future__ import annotations

from pathlib import Path

from shardmill.infra import progress
from shardmill.training.results.run_files.curve import CURVE_FILE, read_curve, recorded_curve


def train(first: int, last: int, total: int) -> None:
    """Report the steps as a training does, and a validation every hundred."""
    for step in range(first, last + 1):
        progress.progress("train", step, total, epoch=1, epochs=1)
        progress.metrics(split="train", epoch=1, step=step, loss=1 / step)
        if step % 100 == 0:
            progress.metrics(split="validation", epoch=1, step=step, loss=2 / step)


def test_a_short_run_keeps_every_point(tmp_path: Path) -> None:
    with recorded_curve(tmp_path / "run"):
        progress.metrics(split="test", final=True, loss=1.0)  # no point: it has no step
        train(1, 300, 300)
    points = read_curve(tmp_path / "run")
    assert [point["step"] for point in points if point["split"] == "train"] == list(range(1, 301))
    assert [point["step"] for point in points if point["split"] == "validation"] == [100, 200, 300]
    assert "event" not in points[0]


def test_a_long_run_keeps_about_2000_points_and_the_last(tmp_path: Path) -> None:
    with recorded_curve(tmp_path):
        train(1, 10_000, 10_000)
    steps = [point["step"] for point in read_curve(tmp_path) if point["split"] == "train"]
    assert 1500 < len(steps) <= 2001
    assert steps[-1] == 10_000


def test_a_resumed_run_adds_to_the_curve_and_repeated_points_count_once(tmp_path: Path) -> None:
    with recorded_curve(tmp_path):
        train(1, 120, 300)
    with recorded_curve(tmp_path):
        train(91, 300, 300)
    steps = [point["step"] for point in read_curve(tmp_path) if point["split"] == "train"]
    assert steps == list(range(1, 301))


def test_ranks_have_points_of_their_own(tmp_path: Path) -> None:
    with recorded_curve(tmp_path):
        progress.progress("train", 1, 10)
        for rank in (0, 1):
            progress.emit({"event": "rank", "rank": rank, "step": 4, "step_seconds": 0.1})
    assert [(point["rank"], point["step"]) for point in read_curve(tmp_path)] == [(0, 4), (1, 4)]


def test_a_line_that_is_cut_off_is_left_out(tmp_path: Path) -> None:
    (tmp_path / CURVE_FILE).write_text('{"split": "train", "step": 1}\nnull\n[1]\n{"split": "train", "st')
    assert [point["step"] for point in read_curve(tmp_path)] == [1]


def test_a_run_of_an_earlier_release_has_none(tmp_path: Path) -> None:
    assert read_curve(tmp_path) == []
