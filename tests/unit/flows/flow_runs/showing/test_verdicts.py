"""Words, rows and intervals of a decision about an alias."""

from __future__ import annotations

import re
from typing import Any

import pytest

from shardmill.flows.flow_runs.showing.trained import (
    comparison_rows,
    decision_in_words,
    intervals_of,
    verdict_text,
)
from shardmill.infra.html import charts

FIGURES = {
    "loss": {"first": 0.5, "second": 0.4, "low": -0.15, "high": -0.05},
    "accuracy": {"first": 0.8, "second": 0.9, "low": 0.02, "high": 0.18},
}
COMPARISON: dict[str, Any] = {"metric": "accuracy", "figures": FIGURES}


def result(action: str = "promoted", *, moved: bool = True, **record: object) -> dict[str, Any]:
    about = {"dataset": "photos", "alias": "production", "run": "two", "action": action, "reason": None}
    about |= {"predecessor": "one", "trained_on": "photos@2", "verdict": "better", "at": "now", "by": "ann"}
    holder = "one" if action == "kept" else "two"
    return {"alias": "photos@production", "moved": moved, "holder": holder, "record": about | record}


@pytest.mark.parametrize(
    ("decided", "words"),
    [
        (result(), "moved to two"),
        (result("kept", moved=False), "stays one; two does not get it"),
        (result(moved=False), "is two already"),
    ],
)
def test_a_decision_in_words(decided: dict[str, Any], words: str) -> None:
    assert decision_in_words(decided) == words
    assert verdict_text(decided).startswith(f"## photos@production {words}\n")


def test_what_people_type_is_no_markup() -> None:
    text = verdict_text(result(reason="a | b\n`</code><img src=x>`"))
    (line,) = [line for line in text.splitlines() if line.startswith("| reason")]
    assert line == "| reason | `a / b '</code><img src=x>'` |"


def test_the_deciding_figure_comes_first_and_better_is_to_the_right() -> None:
    assert [row["figure"] for row in comparison_rows(COMPARISON)] == ["accuracy (decides)", "loss"]
    found = intervals_of(COMPARISON)
    assert list(found) == ["accuracy", "loss"]
    assert found["accuracy"] == (0.02, pytest.approx(0.1), 0.18)
    assert found["loss"] == (0.05, pytest.approx(0.1), 0.15)


def test_the_picture_has_a_bar_for_each_figure_and_stays_inside() -> None:
    rows = {"accuracy": (-1e-9, 0.0, 1e9), "<loss>": (0.0, 0.0, 0.0), "r2": (-0.3, -0.2, -0.1)}
    picture = charts.intervals("title", rows, "worse", "better")
    assert picture.count("<circle") == 3
    assert "&lt;loss&gt;" in picture

    places = [float(x) for x in re.findall(r'cx="([\d.-]+)"', picture)]
    assert all(180 < x < 580 for x in places)
