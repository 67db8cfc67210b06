"""No process of a command knows a file of ours under two names, or under one that is not below shardmill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples.datasets.published import coloured, publish
from tests.samples.modules_seen import ROOT, check_one_name, saying_modules
from tests.samples.preparing.command import prepare_command
from tests.samples.sources.image_folders import write_image_folder
from tests.samples.training.trainer import settings

WORKER = """\
import multiprocessing, shardmill

def read(batches):
    print(len(next(iter(batches)).labels))

if __name__ == "__main__":
    batches = shardmill.open_dataset("colours", "datasets").batches("train", batch_size=8, image_size=16)
    process = multiprocessing.get_context("spawn").Process(target=read, args=(batches,))
    process.start()
    process.join()
    raise SystemExit(process.exitcode)
"""


def run(command: list[str], folder: Path) -> list[str]:
    """Run a command to its end, check its processes, and return the command of each."""
    env = {**os.environ, **saying_modules(folder / "seen")}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return check_one_name(folder / "seen")


def test_prepare_and_its_pool(tmp_path: Path) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=8)
    command = prepare_command(
        source, tmp_path / "root", "--set", "runner.processes=2", "--set", "runner.block_images=4"
    )
    found = run(command, tmp_path)
    assert any("shardmill.beam_jobs.prepare" in one for one in found)
    assert sum("multiprocessing.forkserver" in one for one in found) >= 3, "the server, and the pool of two"


def test_train_and_its_rank(tmp_path: Path) -> None:
    publish(tmp_path / "datasets", coloured({"train": {"blue": 8, "green": 8}}), name="colours")
    chosen = settings(run={"epochs": 1}, ranks={"workers": "1"})
    command = [
        sys.executable,
        "-m",
        "shardmill.training.train",
        "colours",
        "--config-json",
        json.dumps(chosen),
    ]
    found = run(command, tmp_path)
    assert sum("shardmill.training.train_rank" in one for one in found) == 1
    assert any("shardmill.training.train colours" in one for one in found)


def test_a_spawned_reader_of_data(tmp_path: Path) -> None:
    publish(tmp_path / "datasets", coloured({"train": {"blue": 8, "green": 8}}), name="colours")
    (tmp_path / "script.py").write_text(WORKER)
    found = run([sys.executable, "script.py"], tmp_path)
    assert any("spawn_main" in one for one in found)


AGAIN = """\
import sys, shardmill.infra.errors as first
sys.modules["first"] = sys.modules.pop("shardmill.infra.errors")
import shardmill.infra.errors
"""


@pytest.mark.parametrize(
    ("program", "message"), [("import training", "not below shardmill"), (AGAIN, "loaded twice")]
)
def test_a_second_name_is_found(program: str, message: str, tmp_path: Path) -> None:
    env = {**os.environ, **saying_modules(tmp_path / "seen")}
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=env, timeout=60, check=True)
    with pytest.raises(AssertionError, match=message):
        check_one_name(tmp_path / "seen")
