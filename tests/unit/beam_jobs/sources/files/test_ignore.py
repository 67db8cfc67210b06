"""Ignore patterns over names and paths."""

from __future__ import annotations

import pytest

from shardmill.beam_jobs.config import DEFAULT_IGNORE
from shardmill.beam_jobs.sources.files.walking import IgnorePatterns


@pytest.mark.parametrize(
    ("uri", "pattern"),
    [
        ("a/.DS_Store", ".*"),
        ("a/NOTES.TXT", "*.txt"),
        ("README", "README"),
        ("a/photo.jpg", None),
        ("a/readme.jpg.png", None),
        ("Thumbs.db", "Thumbs.db"),
    ],
)
def test_default_patterns(uri: str, pattern: str | None) -> None:
    assert IgnorePatterns(DEFAULT_IGNORE).match(uri.rpartition("/")[2], uri) == pattern


def test_a_pattern_with_a_slash_is_of_the_path() -> None:
    ignore = IgnorePatterns(("train/*/bad*", "x.jpg"))
    assert ignore.match("bad1.jpg", "train/cat/bad1.jpg") == "train/*/bad*"
    assert ignore.match("bad1.jpg", "test/cat/bad1.jpg") is None
    assert ignore.match("x.jpg", "test/cat/x.jpg") == "x.jpg"
    assert IgnorePatterns(()).match("a", "a") is None
