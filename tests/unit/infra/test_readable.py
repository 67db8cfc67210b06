"""Counts, sizes, figures and durations as people read them; nothing printed drives a terminal."""

from __future__ import annotations

import os

import pytest

from shardmill.infra.readable import counted, printable, readable_bytes, readable_figure, readable_seconds


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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.6931471805599453, "0.6931"),
        (1234.5678, "1,235"),
        (40, "40"),
        (123456, "123,456"),
        (1e-7 / 3, "3.333e-08"),
        (0.1 + 0.2, "0.3"),
        (-2.5, "-2.5"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_figures_have_at_most_four_digits(value: float, text: str) -> None:
    assert readable_figure(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "0.2 s"),
        (42.4, "42 s"),
        (59.6, "60 s"),
        (61, "1 min"),
        (3599, "1 h"),
        (4800, "1 h 20 min"),
        (86400 * 2 + 3600 * 3, "2 d 3 h"),
        (86400 * 7, "7 d"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert readable_seconds(seconds) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain name.jpg", "plain name.jpg"),
        ("ünï/图 👩‍🚀.jpg", "ünï/图 👩‍🚀.jpg"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("gpj.\u202ephoto", "gpj.\\u202ephoto"),
        ("\x9b2J", "\\x9b2J"),
        (os.fsdecode(b"caf\xe9"), "caf\\udce9"),
    ],
)
def test_control_characters_are_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_message_keeps_its_lines() -> None:
    assert printable("a\n\tb\x07", keep="\n\t") == "a\n\tb\\x07"
