"""The programs of docs/pytorch.md work unchanged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.samples.datasets.published import coloured, publish

PAGE = Path(__file__).parents[2] / "docs" / "pytorch.md"


def test_the_snippets_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"train": dict.fromkeys("abcdefghij", 20)}
    publish(tmp_path / "datasets", coloured(counts), name="photos")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for snippet in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL):
        exec(snippet, names)
    assert (names["again"].epoch, names["again"].step) == (2, 0)
    assert names["images"].shape == (64, 3, 96, 96)
    assert [batch.step for batch in names["batches"]] == [3, 0, 1, 2, 3]
    assert [batch.epoch for batch in names["in_order"]] == [1, 1, 1, 1]
