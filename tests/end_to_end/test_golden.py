"""The stored bytes of whole datasets equal their golden records (``tests.end_to_end.golden``)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.golden import builds
from tests.end_to_end.golden.cases import CASES, shared_folder
from tests.end_to_end.golden.recording import changes, path_of, record


@pytest.mark.parametrize("name", CASES)
def test_stored_bytes_are_as_recorded(name: str, tmp_path: Path) -> None:
    recorded = json.loads(path_of(name).read_text(encoding="utf-8"))
    if difference := builds.difference(recorded["builds"]):
        pytest.skip(f"stored bytes are NOT compared with the record: {difference}")
    photographs = CASES[name].photographs
    if photographs and not shared_folder(photographs).is_dir():
        pytest.skip(f"{shared_folder(photographs)} is missing: its photographs are NOT prepared")
    if found := changes(name, record(name, tmp_path)):
        pytest.fail(
            f"The stored bytes of '{name}' changed. If that is intended, record them again with "
            f"`python -m tests.end_to_end.golden --write {name}`.\n{found}",
            pytrace=False,
        )
