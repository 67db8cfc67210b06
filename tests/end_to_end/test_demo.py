"""The demo as a user runs it: from no images to a trained model, an account and a report."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_demo_ends_well(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flows.demo", "--out", str(tmp_path / "demo")],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    account = done.stdout
    assert done.returncode == 0, account[-2000:] + done.stderr[-4000:]
    assert "Traceback" not in done.stderr
    assert "1,213 inputs = 1,200 records + 7 duplicates + 2 filtered + 4 quarantined" in account
    assert "the failure budget of this run allows 1.00%" in account
    for said in (
        "ends early",
        "no content",
        "not of a known image format",
        "1/1_025.jpg and 7/1_025.jpg",
        "shardmill up",
    ):
        assert said in account
    accuracy = re.search(r"Test accuracy ([\d.]+)%", account)
    assert accuracy is not None
    assert float(accuracy[1]) >= 95
    report = next((tmp_path / "demo" / "datasets" / "digits" / "data").glob("*/report.html"))
    assert report.stat().st_size > 10_000


def test_a_source_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flows.demo", "--out", str(tmp_path), "--source", str(tmp_path / "none")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0].startswith("error: no such folder")
    assert done.stderr.splitlines()[1].startswith("remedy: ")
