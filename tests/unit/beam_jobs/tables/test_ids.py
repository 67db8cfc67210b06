"""Ids, digests of tables, and parts that stay the same when other rows change."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.beam_jobs.tables.ids import hex_bytes, hex_text, part_lengths

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


@given(st.lists(st.binary(min_size=8, max_size=8), max_size=20), st.integers(0, 3))
def test_hexadecimal_text_there_and_back(values: list[bytes], skip: int) -> None:
    digits = np.frombuffer(b"".join(values), np.uint8).reshape(-1, 8)
    text = hex_text(digits)
    assert text.to_pylist() == [value.hex() for value in values]
    assert (hex_bytes(text.slice(skip), 8) == digits[skip:]).all()


@pytest.mark.parametrize("texts", [["00", None], ["00", "000"], ["0"]])
def test_text_that_stands_for_no_bytes(texts: list[str | None]) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        hex_bytes(pa.array(texts), 1)
