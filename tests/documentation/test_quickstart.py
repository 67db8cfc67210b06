"""The notebook docs/quickstart.ipynb: it runs from top to bottom, and what it stores is what it shows."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "quickstart.ipynb"
PICTURES_BYTES = 100_000  # a public host shows the stored outputs


def cells(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text(encoding="utf-8"))["cells"])


def shown(cell: dict[str, Any]) -> str:
    """What a cell shows, as text, without pictures, dates and shares."""
    data = [output.get("data", {"text/plain": output.get("text", "")}) for output in cell["outputs"]]
    text = "".join("".join(one.get("text/html", one.get("text/plain", ""))) for one in data)
    return re.sub(r"<[^>]*>|\d{4}-\d\d-\d\d|[\d.]+%", " ", text)


def test_the_stored_outputs_are_small_and_speak_of_no_machine() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    pictures = re.findall(r"[A-Za-z0-9+/]{400,}", text)
    assert len(pictures) > 20
    assert sum(len(base64.b64decode(picture + "==")) for picture in pictures) < PICTURES_BYTES
    assert not re.search(r"/(?:root|home|work|tmp)/", text)
    code = [cell for cell in cells(NOTEBOOK) if cell["cell_type"] == "code"]
    ran = [cell for cell in code if "skip-execution" not in cell["metadata"].get("tags", ())]
    assert [cell["execution_count"] for cell in ran] == [*range(1, len(ran) + 1)]
    assert not [output for cell in ran for output in cell["outputs"] if output["output_type"] == "error"]


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path) -> None:
    """In a kernel of its own and an empty folder, as for a reader."""
    made = tmp_path / "made.ipynb"
    command = [sys.executable, str(NOTEBOOK.with_suffix(".py")), str(made)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for old, new in zip(cells(NOTEBOOK), cells(made), strict=True):
        if old["cell_type"] == "code":
            assert shown(new) == shown(old), old["id"]
