"""Groups that a pattern finds in URIs."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import LISTING_SCHEMA
from shardmill.beam_jobs.sources import list_inputs
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from tests.samples.images.photos import write


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [
        (r"patient(\d+)", ["7", "12", None, "7"]),
        (r"(?:patient|p)(\d*)", ["7", "12", None, "7"]),  # nothing in the parenthesis is no group
        (r"^(\w)/", ["a", "a", "b", "b"]),
        (r"(x)?_2", [None, None, None, None]),
    ],
)
def test_a_pattern_gives_groups(pattern: str, groups: list[str | None], tmp_path: Path) -> None:
    names = ["a/patient7_1.png", "a/patient12_2.png", "b/p_3.png", "b/patient7.png"]
    write(tmp_path, dict.fromkeys(names, b"x"))
    config = PrepareConfig.model_validate({"groups": {"pattern": pattern}})
    table = list_inputs(SourceFolder(str(tmp_path)), config).table
    assert table.schema == LISTING_SCHEMA
    found = dict(zip(table["uri"].to_pylist(), table["group"].to_pylist(), strict=True))
    assert [found[name] for name in names] == groups


def test_without_a_pattern_there_are_no_groups(tmp_path: Path) -> None:
    write(tmp_path, {"a/1.png": b"x"})
    assert list_inputs(SourceFolder(str(tmp_path)), PrepareConfig()).table["group"].to_pylist() == [None]
