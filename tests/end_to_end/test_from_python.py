"""The functions of ``import shardmill`` do what the commands do, each in a process of its own."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

import shardmill
from tests.samples.datasets.published import coloured, publish
from tests.samples.preparing.command import prepare_command
from tests.samples.sources.image_folders import write_image_folder, write_many_large_images
from tests.samples.training.trainer import settings
from tests.samples.waiting import before_its_end, eventually

ONE_PROCESS = {"runner.processes": 1}
# Python imports this module first, in the script and in the processes of its jobs.
_WITHOUT_PLATFORM = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("typer", "click", "prefect"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def script(folder: Path, text: str) -> subprocess.Popen[str]:
    """Start a script as users write it: without ``if __name__ == "__main__"``, in a folder of its own.

    The libraries of the command line and of the platform are hidden from it.
    """
    hiding = folder / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text(_WITHOUT_PLATFORM)
    (folder / "script.py").write_text(f"import json\nimport shardmill\n{text}\n")
    return subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(hiding)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def data_files(root: Path) -> dict[str, bytes]:
    """Path -> bytes of shards, indexes and inputs."""
    found = sorted((root / "d" / "data").rglob("*"))
    return {str(path.relative_to(root)): path.read_bytes() for path in found if path.suffix != ".html"
            and path.is_file()}  # fmt: skip


def test_prepare_makes_the_bytes_of_the_command(tmp_path: Path) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=8)
    text = (
        "settings = {'image.size': 32, 'image': {'quality': 80}, 'runner.processes': 1}\n"
        "print(json.dumps(shardmill.prepare('photos', dataset='d', root='mine', settings=settings)))"
    )
    found, shown = script(tmp_path, text).communicate(timeout=240)
    given = json.loads(found)
    command = [*prepare_command(source, tmp_path / "other"), "--json", "--set", "image.size=32"]
    command += ["--set", "image.quality=80", "--set", "runner.processes=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    wanted = json.loads(done.stdout.splitlines()[-1])
    assert data_files(tmp_path / "mine") == data_files(tmp_path / "other")
    assert [*given] == [*wanted]
    same = [name for name in wanted if given[name] == wanted[name]]
    assert {"version", "splits", "classes", "num_records", "container", "quarantine", "source"} <= {*same}
    assert "encode: 16 of 16 images" in shown
    again = shardmill.prepare(
        source, dataset="d", root=tmp_path / "mine", settings={"image.size": 32, "image.quality": 80}
    )
    assert (again["unchanged"], again["version"]) == (True, 1)


def test_a_process_of_multiprocessing_may_prepare(tmp_path: Path) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=8)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        job = pool.submit(
            shardmill.prepare, source, dataset="d", root=tmp_path / "root", settings=ONE_PROCESS, dry_run=True
        )
        found = job.result(timeout=240)
    assert (found["next_version"], found["num_to_read"]) == (1, 16)
    assert not (tmp_path / "root").exists()


def test_ctrl_c_stops_the_whole_job_and_the_same_call_goes_on(tmp_path: Path) -> None:
    source = write_many_large_images(tmp_path / "photos", 24, size=2000)
    call = "shardmill.prepare('photos', dataset='d', root='root', settings={'runner.block_images': 4})"
    process = script(tmp_path, f"print(json.dumps({call}))")
    blocks = "d/spool/*/blocks/*.arrow"
    before_its_end(lambda: next((tmp_path / "root").glob(blocks), None), lambda: process.poll() is not None)
    tree = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert len(tree) > 1
    assert eventually(lambda: not any(one.is_running() for one in tree))
    assert not (tmp_path / "root" / "d" / "manifests").exists()
    done = shardmill.prepare(source, dataset="d", root=tmp_path / "root", settings={"runner.block_images": 4})
    assert done["num_records"] == 24
    assert done["reused"]["blocks"] > 0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            {"settings": {"image.sise": 32}},
            "ConfigError",
            "unknown key 'image.sise'.*did you mean 'image.size'",
        ),
        ({"settings": {"image": {"size": "x"}}}, "ConfigError", "image.size = 'x'"),
        ({"settings": {"image.size": 9, "image": {"size": 8}}}, "ConfigError", "give 'image.size' twice"),
        ({"settings": {3: 9}}, "ConfigError", "3 is no name of a setting"),
        ({"settings": {"run.epochs": 9}}, "ConfigError", "run.epochs is a setting of train"),
        ({"setings": {}}, "ConfigError", "unknown argument 'setings' of prepare.*did you mean 'settings'"),
        ({"settings": "image.size=3"}, "ConfigError", "is of type str.*give a dict"),
        ({"dataset": "a/b"}, "ConfigError", "cannot be used"),
        ({"recipe": "finetun"}, "UsageError", "did you mean 'finetune'"),
        ({"config": "none.toml"}, "ConfigError", "cannot read configuration none.toml"),
        ({"source": "nowhere"}, "NotFoundError", "source nowhere does not exist"),
        ({"source": ""}, "UsageError", "SOURCE is empty"),
    ],
)
def test_prepare_refuses_mistakes_before_anything_starts(
    call: dict[str, Any], error: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_image_folder(tmp_path / "photos", per_class=1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(getattr(shardmill, error), match=message):
        shardmill.prepare(**{"source": "photos", "dataset": "d", **call})
    assert not (tmp_path / "datasets").exists()


def test_training_needs_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does what follows: tests/end_to_end/train/test_run_commands.py calls evaluate and predict."""
    counts = {"train": {"blue": 8, "green": 8}, "test": {"blue": 2, "green": 2}}
    publish(tmp_path / "datasets", coloured(counts), name="colours")
    places = {"root": tmp_path / "datasets", "runs": tmp_path / "runs"}
    chosen = settings(run={"epochs": 1})
    with pytest.raises(shardmill.NotFoundError, match="no dataset 'colour'"):
        shardmill.train("colour", **places, settings=chosen)
    text = (
        f"found = shardmill.train('colours', root='datasets', runs='runs', settings={chosen!r})\n"
        "print(json.dumps(found))"
    )
    said, shown = script(tmp_path, text).communicate(timeout=400)
    assert said, shown
    found = json.loads(said)
    assert found["metrics"]["test"]["num_examples"] == 4
    command = [sys.executable, "-m", "shardmill.training.train", "colours", "--json", "--config-json"]
    command += [json.dumps(chosen), "--root", str(tmp_path / "datasets"), "--runs", str(tmp_path / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == {**found, "unchanged": True}
    ranks = {"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(ranks))
    assert shardmill.train("colours", **places, settings=chosen) == {}, "the first rank has the result"


def test_train_refuses_mistakes_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(shardmill.ConfigError, match=r"did you mean 'run\.epochs'"):
        shardmill.train("colours", settings={"run.epoch": 3})
    with pytest.raises(shardmill.ConfigError, match=r"image\.size is a setting of prepare"):
        shardmill.train("colours", settings={"image.size": 3})
