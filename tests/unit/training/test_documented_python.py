"""What docs/read-from-python.md shows works as it stands there, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.samples.published import coloured, publish

PAGE = Path(__file__).parents[3] / "docs" / "read-from-python.md"


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(tmp_path / "datasets", coloured({"train": {"cat": 70, "dog": 40}}), name="photos")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 8
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    assert names["images"].shape == (32, 96, 96, 3)
    assert names["batch"].images.dtype == np.uint8
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "['cat', 'dog'] ['train'] 110"
    assert printed[-2] == "6 steps"
    assert printed[-1].endswith("bytes of jpeg")
