"""Hexadecimal text of whole columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.beam_jobs.tables.ids import hex_bytes, hex_text


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
