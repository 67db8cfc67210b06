"""The demo as a user runs it: from images to a trained model, an account and a report."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.samples.sources.image_folders import write_image_folder
from tests.samples.waiting import eventually

FAULTS = ("ends early", "no content", "of no known image format", "same image under two labels")
QUICK = """\
[prepare]
failure_budget = 0.2
[train]
data = { image_size = 32, global_batch_size = 16 }
run = { epochs = 1 }
"""


DEMO = (sys.executable, "-P", "-m", "shardmill.flows.cli", "demo")
ENV = {**os.environ, "COLUMNS": "120"}


def demo(folder: Path, *options: str, timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, *options],
        cwd=folder,
        env=ENV,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def account_of(done: subprocess.CompletedProcess[str]) -> str:
    """What a demo printed that ended well."""
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_demo_of_ones_own_folder_ends_well(tmp_path: Path) -> None:
    """With the configuration that is there: it is the user's to edit."""
    source = write_image_folder(tmp_path / "my photos")
    whole = (source / "circle" / "000.jpg").read_bytes()
    (source / "circle" / "copy.jpg").write_bytes(whole)
    (source / "square" / "copy.jpg").write_bytes(whole)
    (source / "circle" / "interrupted.jpg").write_bytes(whole[:-60])
    (source / "square" / "empty.png").write_bytes(b"")
    (source / "square" / "notes.png").write_bytes(b"no pixels")
    (source / ".DS_Store").write_bytes(b"Bud1")
    out = tmp_path / "demo"
    out.mkdir()
    (out / "my-photos.toml").write_text(QUICK)
    account = account_of(demo(tmp_path, "--source", "my photos", timeout=600))
    assert "46 inputs = 40 records + 2 duplicates + 1 filtered + 3 quarantined" in account
    assert "the failure budget of this run allows 20.00%" in account
    for said in (*FAULTS, "circle/000.jpg", "square/copy.jpg", "shardmill up"):
        assert said in account
    assert re.search(r"Test accuracy [\d.]+%", account)
    report = next((out / "datasets" / "my-photos" / "data").glob("*/report.html"))
    assert report.stat().st_size > 10_000
    assert (out / "my-photos.toml").read_text() == QUICK


@pytest.mark.slow
def test_the_demo_of_digits_ends_well_although_its_server_dies(tmp_path: Path) -> None:
    with (tmp_path / "err").open("w") as err, (tmp_path / "out").open("w") as out:
        process = subprocess.Popen([*DEMO], cwd=tmp_path, env=ENV, stdout=out, stderr=err)
    with process:
        assert eventually(lambda: "epoch 1: " in (tmp_path / "err").read_text(), seconds=300)
        (server,) = [one for one in psutil.Process(process.pid).children() if "server" in one.cmdline()]
        server.kill()
        status = process.wait(timeout=300)
    said, account = (tmp_path / "err").read_text(), (tmp_path / "out").read_text()
    assert status == 0, said
    assert "starting it again" in said
    assert "the history" not in said, "it is complete"
    assert "1,213 inputs = 1,200 records + 7 duplicates + 2 filtered + 4 quarantined" in account
    assert "the failure budget of this run allows 1.00%" in account
    for told in (*FAULTS, "1/1_025.jpg and 7/1_025.jpg", "shardmill up"):
        assert told in account
    for part in ("start Prefect", "prepare: write the shards", "train: learn", "train: write the report"):
        assert re.search(rf"{part} +[\d.]+ +[\d.]+", account), part
    accuracy = re.search(r"Test accuracy ([\d.]+)%", account)
    assert accuracy is not None
    assert float(accuracy[1]) >= 95
    report = next((tmp_path / "demo" / "datasets" / "digits" / "data").glob("*/report.html"))
    assert report.stat().st_size > 10_000
