"""Limits of quality flags, and the files that are left out by them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.beam_jobs.plan.quality import count_quality, without_flagged
from shardmill.beam_jobs.schemas import FACTS_SCHEMA, Status
from shardmill.infra.format.quality import BOUNDS, QUALITY_COLUMNS, QualityCounts, flagged

GOOD = {
    "luma_p5": 40, "luma_p99": 220, "luma_entropy": 7.0, "luma_sharpness": 0.6, "border_share": 0.0,
    "source_height": 400, "source_width": 300,
}  # fmt: skip


def facts(*rows: dict[str, Any], status: Status = Status.STORED) -> pa.Table:
    return pa.Table.from_pylist([{"status": status, **GOOD, **row} for row in rows], FACTS_SCHEMA)


def spread(count: int, **measures: tuple[float, float]) -> list[dict[str, Any]]:
    """Rows whose measures lie evenly between two values."""
    return [
        {name: low + (high - low) * at / count for name, (low, high) in measures.items()}
        for at in range(count)
    ]


def found(table: pa.Table) -> dict[str, list[int]]:
    """Flag -> rows that have it."""
    flags = flagged(table, count_quality(table).limits())
    return {name: np.flatnonzero(bad).tolist() for name, bad in flags.items() if bad.any()}


@pytest.mark.parametrize(
    ("bad", "flags"),
    [
        ({"luma_p99": 79, "luma_p5": 0}, {"dark"}),
        ({"luma_p99": 79, "luma_p5": 72}, {"dark", "uniform"}),
        ({"luma_p5": 244, "luma_p99": 255}, {"light"}),
        ({"luma_sharpness": 0.3}, {"blurred"}),
        ({"luma_sharpness": None}, set()),
        ({"luma_entropy": 2.9}, {"low_information"}),
        ({"border_share": 0.05}, {"border"}),
        ({"source_height": 1200, "source_width": 120}, {"odd_aspect"}),
        ({"source_height": 120, "source_width": 1200}, {"odd_aspect"}),
        ({"source_height": 150, "source_width": 110}, {"odd_size"}),
        ({"source_height": 900, "source_width": 700}, {"odd_size"}),
        ({"luma_p5": None, "luma_p99": None}, set()),
    ],
)
def test_each_flag_marks_its_kind_alone(bad: dict[str, Any], flags: set[str]) -> None:
    table = facts(*[{}] * 20, bad)
    assert found(table) == {name: [20] for name in flags}


@pytest.mark.parametrize(
    "usual",
    [
        {"luma_p99": 70, "luma_p5": 10},
        {"luma_p5": 246, "luma_p99": 255},
        {"luma_sharpness": 0.3},
        {"luma_entropy": 2.5},
        {"border_share": 0.3},
        {"source_height": 1000, "source_width": 300},
    ],
)
def test_what_is_usual_in_a_version_is_not_flagged(usual: dict[str, Any]) -> None:
    assert found(facts(*[usual] * 20)) == ({"border": [*range(20)]} if "border_share" in usual else {})


def test_blank_and_black_pictures_are_flagged_however_many_there_are() -> None:
    table = facts(*[{"luma_p99": 3, "luma_p5": 0, "luma_entropy": 0.0, "luma_sharpness": None}] * 5)
    assert found(table).keys() == {"dark", "low_information", "uniform"}


def test_many_bad_pictures_hide_none_of_them() -> None:
    table = facts(*spread(60, luma_p99=(190, 250)), *spread(40, luma_p99=(40, 79)))
    assert found(table)["dark"] == [*range(60, 100)]


def test_limits_are_those_of_the_formula() -> None:
    # Median 0.6 and quartile 0.5: the fence 0.6·(5/6)³ = 0.347 is below what is surely blurred, 0.36.
    values = [0.5] * 30 + [0.6] * 50 + [0.9] * 20
    limits = count_quality(facts(*({"luma_sharpness": value} for value in values))).limits()
    assert limits["blurred"].below == 0.36
    # Median 205 and quartile 150: 3·150 - 2·205 = 40 is below 80, surely dark.
    values = [150] * 40 + [205] * 40 + [250] * 20
    limits = count_quality(facts(*({"luma_p99": value} for value in values))).limits()
    assert limits["dark"].below == 80
    # Sides of 400 and 200: 400·(1/2)³ = 50; above, no more than the double of the median.
    values = [200] * 40 + [400] * 60
    limits = count_quality(facts(*({"source_height": n, "source_width": n} for n in values))).limits()
    assert (limits["odd_size"].below, limits["odd_size"].above) == (50, 800)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.randoms())
def test_limits_do_not_depend_on_how_and_in_which_parts_pictures_are_counted(
    cuts: list[int], random: Any
) -> None:
    rows = spread(len(cuts) * 2, luma_p99=(0, 255), luma_entropy=(0, 8), luma_sharpness=(0.2, 2))
    random.shuffle(rows)
    whole = facts(*rows)
    parts, at = QualityCounts(), 0
    for cut in [*cuts, len(rows)]:
        parts.add_table(count_quality(whole.slice(at, cut)).to_table())
        at += cut
    assert parts.limits() == count_quality(whole).limits()


def test_lost_files_count_for_nothing_and_the_first_flag_is_the_reason() -> None:
    lost = pa.Table.from_pylist([{"status": Status.QUARANTINED, "reason": "corrupt"}], FACTS_SCHEMA)
    dark = {"luma_p99": 30, "luma_p5": 28, "luma_entropy": 1.5}
    table = pa.concat_tables([lost, facts(*[{}] * 9, dark), facts(dark, status=Status.STORED_BEFORE)])
    limits = count_quality(table).limits()
    left = without_flagged(table, limits, tuple(BOUNDS))
    assert left["reason"].to_pylist() == ["corrupt", *[None] * 9, "dark", "dark"]
    assert left["status"].to_pylist()[-2:] == [Status.FILTERED, Status.FILTERED]
    assert left["message"][10].as_py() == "luma_p99 is 30, below 100"
    assert without_flagged(left, limits, tuple(BOUNDS)).equals(left)
    assert without_flagged(table, limits, ()) is table
    assert without_flagged(table, limits, ("light", "uniform"))["reason"].to_pylist()[-1] == "uniform"


def test_an_empty_version_and_tables_of_earlier_releases_have_no_limits() -> None:
    assert count_quality(FACTS_SCHEMA.empty_table()).limits() == {}
    counts = QualityCounts()
    counts.add(facts(*[{}] * 3).drop_columns(QUALITY_COLUMNS[:5]))
    assert counts.limits().keys() == {"odd_aspect", "odd_size"}
