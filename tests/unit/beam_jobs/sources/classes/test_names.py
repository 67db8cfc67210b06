"""Warnings about the names of classes: written in several ways, or names of no class."""

from __future__ import annotations

import pytest

from shardmill.beam_jobs.sources.class_names import look_alikes, no_classes


@pytest.mark.parametrize(
    ("classes", "found"),
    [
        (["Not sure", "Skip", "hat"], "'Not sure', 'Skip' sound like no class"),
        (["N/A", "hat"], "'N/A' sounds like no class"),
        (["-1", "0", "1", "-10"], "'-1' sounds like no class"),
        (["not-sure", "don't know"], "'not-sure', \"don't know\" sound like no class"),
        (["hat", "other", "3", "skipper", ""], None),
    ],
)
def test_names_of_no_class(classes: list[str], found: str | None) -> None:
    warnings = no_classes(classes, "drop it")
    assert warnings == ([f"{found}: drop it if so"] if found else [])


def test_many_classes_that_are_written_in_several_ways_are_one_warning() -> None:
    few = look_alikes(["Hat", "hat", "dress"], "merge them")
    assert [text.partition(";")[0] for text in few] == [
        "the classes 'Hat', 'hat' differ only in case, white space or Unicode normalisation"
    ]
    for alike in (
        ["cat", "cat "],
        ["hot dog", "hotdog"],
        ["a b", "a\u00a0b"],
        ["cat", "c\u200bat"],
        ["a\tb", "a b"],
    ):
        assert len(look_alikes([*alike, "dog"], "merge them")) == 1
    assert look_alikes(["cat", "cats", "c-at", ""], "merge them") == []
    (many,) = look_alikes([form for name in "abcde" for form in (name, name.upper())], "merge them")
    assert many.startswith("5 classes are written in several ways")
    assert "'a', 'A'; 'b', 'B'; 'c', 'C' and 2 more" in many
