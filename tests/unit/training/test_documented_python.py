"""The programs on the pages about reading from Python work unchanged, from top to bottom."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.samples.datasets.published import coloured, publish

PAGE = Path(__file__).parents[3] / "docs" / "read-from-python.md"


CHECKS = """
assert images.shape == (16, 96, 96, 3)
assert abs(weights.sum() - 1) < 1e-6
assert str(batch.images.dtype) == "uint8"
"""


def test_the_page_runs(tmp_path: Path) -> None:
    """In a process of its own: JAX warns of every later fork of a process that uses it."""
    publish(tmp_path / "datasets", coloured({"train": {"cat": 70, "dog": 40}}), name="photos")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 11
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*blocks, CHECKS])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert printed[0] == "<Dataset photos@1: train 110; 2 classes>"
    assert printed.count("(32, 96, 96, 3) (32,)") == 3 + 6  # of TensorFlow, and two epochs of Grain
    assert printed[-1].endswith("bytes of jpeg")


def test_the_page_of_queries_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(tmp_path / "datasets", coloured({"train": {"coat": 3, "hat": 9}}), name="photos")
    monkeypatch.chdir(tmp_path)
    page = PAGE.with_name("query-and-views.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(block, names)
    assert names["table"].num_rows == 12
    assert set(names["batch"].labels.tolist()) == {1}
    assert names["wide"].num_rows == 9
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == "['train'] 9 photos@1?label == 'hat' and width >= 40"


def test_the_queries_of_the_list_are_understood(tmp_path: Path) -> None:
    classes = {"coat": 1, "hat": 1, "unsure": 1}
    version = publish(tmp_path, coloured({"train": classes}), name="photos")
    page = PAGE.with_name("query-and-views.md").read_text(encoding="utf-8")
    items = page.split("## What a query can say")[1].split("\n- **")[0]
    of_index = version.scan().dataset_schema.names
    queries = [
        query
        for query in re.findall(r"`([^`]*)`", items.replace("\n  ", " "))
        if any(name in query for name in of_index) and "labels" not in query
    ]
    assert len(queries) >= 11
    for query in queries:
        assert version.query(query).num_examples("train") <= 3
