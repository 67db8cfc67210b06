"""The history of the benchmarks: what is kept, and what today's ratios are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.measuring.history import VARIABLE, Line, compared, keep, note, read, today


def line(release: str, machine: str = "m", numpy: str = "2.0", **ratios: float) -> Line:
    versions = {"numpy": numpy}
    return {
        "release": release,
        "machine": machine,
        "day": "2026-01-01",
        "versions": versions,
        "ratios": ratios,
    }


def test_a_line_is_kept_for_each_release_and_machine(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    for new in (
        line("1", a=0.5, b=1.0),
        line("1", "other", a=2.0),
        line("2", a=0.6),
        line("1", a=0.7, c=3.0),
    ):
        keep(history, new)
    kept = {(one["release"], one["machine"]): one["ratios"] for one in read(history)}
    assert kept == {
        ("1", "m"): {"a": 0.7, "b": 1.0, "c": 3.0},
        ("1", "other"): {"a": 2.0},
        ("2", "m"): {"a": 0.6},
    }
    assert len(history.read_text().splitlines()) == 3


def test_ratios_stand_beside_the_last_of_the_same_machine() -> None:
    lines = [line("1", a=1.0, b=0.5), line("2", a=2.0), line("3", "other", a=9.0)]
    title, *texts = compared(line("4", numpy="2.1", a=1.5, b=0.51, c=0.4), lines)
    assert title.startswith("ratios of 4")
    assert [" ".join(text.split()) for text in texts] == [
        "a 1.50 2.00 in 2 (2026-01-01) -25%",
        "b 0.51 0.50 in 1 (2026-01-01)",
        "c 0.40 the first on this machine",
        "another version since then: numpy 2.0 -> 2.1",
    ]


def test_ratios_are_noted_where_somebody_collects_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    note("a", 1.0)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "build/ratios.jsonl"))
    for name, ratio in (("a", 0.1), ("b", 0.25), ("a", 0.5556)):
        note(name, ratio)
    new = today(tmp_path / "build/ratios.jsonl")
    assert new["ratios"] == {"a": 0.556, "b": 0.25}
    assert new["versions"]["numpy"]
