"""Tables are cut into parts of bounded length."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from shardmill.beam_jobs.tables.cutting import part_lengths

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
URIS = st.lists(NAMES, unique=True).map(sorted)


def lengths_of(uris: Iterable[str], mean: int) -> list[int]:
    return list(part_lengths(pa.chunked_array([list(uris)], pa.string()), mean))


@given(URIS, st.integers(4, 40))
def test_parts_cover_all_rows_and_keep_the_bounds(uris: list[str], mean: int) -> None:
    lengths = lengths_of(uris, mean)
    assert sum(lengths) == len(uris)
    assert all(1 <= length <= 2 * mean for length in lengths)
    assert all(length >= mean // 4 for length in lengths[:-1])


def test_the_mean_is_about_what_was_asked() -> None:
    lengths = lengths_of((f"class/{number:07d}.jpg" for number in range(60_000)), 128)
    assert 100 <= sum(lengths) / len(lengths) <= 140
