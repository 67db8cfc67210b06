"""Counts and sizes as people read them."""

from __future__ import annotations

import pytest

from infra.readable import counted, readable_bytes


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.0 KiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 40, "3.0 TiB"),
        (3 << 50, "3,072.0 TiB"),
    ],
)
def test_bytes(num_bytes: int, text: str) -> None:
    assert readable_bytes(num_bytes) == text


def test_counts() -> None:
    assert [counted(count, "input") for count in (0, 1, 2000)] == ["0 inputs", "1 input", "2,000 inputs"]
    assert [counted(count, "class", "classes") for count in (1, 2)] == ["1 class", "2 classes"]
