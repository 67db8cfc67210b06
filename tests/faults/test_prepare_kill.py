"""``kill -9`` in prepare, at any moment: no process survives, and the next run publishes the same bytes.

A kill falls either at a random time or when a random number of blocks or shards is finished, so that each
stage is hit whatever the speed of the machine. What a run finds finished must be what it says it reused.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.command import prepare_command

# How often, and in place of a made folder a real one: `make test-faults` with these in the environment.
NUM_KILLS = int(os.environ.get("SHARDMILL_TEST_KILLS", "50"))
REAL_SOURCE = os.environ.get("SHARDMILL_TEST_KILL_SOURCE", "")

NUM_SHARDS = 4
SETTINGS = (
    "runner.block_images=8",
    "runner.processes=2",
    f"shards.num_shards={NUM_SHARDS}",
    "image.size=160",
)

Target = Literal["pool process", "fork server"]


@dataclass(frozen=True)
class Moment:
    """The moment of a kill: after so many seconds, or once so many blocks or shards are finished."""

    kind: Literal["seconds", "blocks", "shards"]
    value: float

    def is_due(self, started: float, root: Path) -> bool:
        if self.kind == "seconds":
            return time.monotonic() - started >= self.value
        pattern = "spool/*/blocks/*.arrow" if self.kind == "blocks" else "data/*/*.tfrecord*"
        return len(list((root / "d").glob(pattern))) >= self.value


@dataclass(frozen=True)
class Undisturbed:
    """A run that nothing happened to."""

    source: Path
    seconds: float
    num_blocks: int
    files: dict[str, bytes]
    manifest: dict[str, Any]


def start(source: Path, root: Path, *more: str) -> subprocess.Popen[str]:
    argv = prepare_command(source, root, "--json")
    settings = [word for setting in (*SETTINGS, *more) for word in ("--set", setting)]
    return subprocess.Popen([*argv, *settings], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 0, stderr
    outcome: dict[str, Any] = json.loads(stdout.splitlines()[-1])
    return outcome


def published(root: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """(path -> bytes of shards, indexes and inputs; the manifest without its time)."""
    files = {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted((root / "d/data").rglob("*"))
        if path.is_file() and path.name != "report.html"
    }
    manifest = json.loads((root / "d/manifests/000001.json").read_bytes())
    for key in ("created_at", "checksum", "report_sha256"):  # the report says when it was made
        del manifest[key]
    return files, manifest


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    source = Path(REAL_SOURCE) if REAL_SOURCE else made_source(folder / "source")
    process = start(source, folder / "root")
    began = time.monotonic()
    blocks = 0
    while process.poll() is None:
        blocks = max(blocks, len(list((folder / "root/d").glob("spool/*/blocks/*.arrow"))))
        time.sleep(0.01)
    outcome = finish(process)
    if not REAL_SOURCE:
        assert (outcome["num_records"], outcome["num_duplicates"], outcome["num_quarantined"]) == (260, 1, 1)
    assert blocks > 20
    files, manifest = published(folder / "root")
    assert len(files) >= 2 * 3 * NUM_SHARDS + 1
    return Undisturbed(source, time.monotonic() - began, blocks, files, manifest)


def made_source(folder: Path) -> Path:
    source = make_photos(folder, {"a": 150, "b": 90, "c": 20}, height=240, width=320)
    copy = (source / "b/00001.jpg").read_bytes()
    return write(source, {"a/copy.jpg": copy, "c/broken.jpg": jpeg(9000)[:-60]})


def tree_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def wait_for(moment: Moment, process: subprocess.Popen[str], root: Path) -> None:
    started = time.monotonic()
    while not moment.is_due(started, root) and process.poll() is None:
        time.sleep(0.002)


def kill_at(moment: Moment, process: subprocess.Popen[str], root: Path) -> bool:
    """Kill the job; False where the run was over before. Nothing of the tree survives."""
    wait_for(moment, process, root)
    tree = tree_of(process)
    process.kill()
    process.communicate(timeout=120)
    _, alive = psutil.wait_procs(tree, timeout=60)
    assert not alive, f"survived the kill of the job: {alive}"
    return process.returncode != 0


def finished_in(root: Path) -> tuple[int, int]:
    """(blocks, shards) that stand finished in storage."""
    return (
        len(list((root / "d").glob("spool/*/blocks/*.arrow"))),
        len(list((root / "d").glob("spool/*/shards/*/*.json"))),
    )


def check_resumed(undisturbed: Undisturbed, root: Path) -> dict[str, Any]:
    """Run to the end; the result is that of the undisturbed run, and finished work was not done again."""
    blocks, shards = finished_in(root)
    outcome = finish(start(undisturbed.source, root))
    if outcome["unchanged"]:
        assert outcome["reused"] == {"blocks": 0, "images": 0, "shards": 0}
    else:
        assert (outcome["reused"]["blocks"], outcome["reused"]["shards"]) == (blocks, shards)
    files, manifest = published(root)
    assert sorted(files) == sorted(undisturbed.files)
    differing = [name for name, data in files.items() if data != undisturbed.files[name]]
    assert differing == []
    assert manifest == undisturbed.manifest
    paths = [path for path in (root / "d").rglob("*") if path.suffix != ".lock"]  # these stay on purpose
    left = [path for path in paths if ".partial-" in path.name or "spool/" in str(path)]
    # A writer killed while publishing leaves a hidden copy of the manifest, which `shardmill gc` removes.
    assert [path for path in left if path.parent.name != "manifests"] == []
    assert verify(Catalog(root).open("d")).problems == []
    return outcome


def moments(undisturbed: Undisturbed, seed: int) -> Iterator[Moment]:
    """Random moments: half anywhere in the run, a quarter between blocks, a quarter between shards."""
    rng = random.Random(seed)
    while True:
        yield Moment("seconds", rng.uniform(0.1, undisturbed.seconds))
        yield Moment("blocks", rng.randint(1, undisturbed.num_blocks - 1))
        yield Moment("seconds", rng.uniform(0.1, undisturbed.seconds))
        yield Moment("shards", rng.randint(1, 3 * NUM_SHARDS))


def test_killed_while_encoding(undisturbed: Undisturbed, tmp_path: Path) -> None:
    root = tmp_path / "root"
    process = start(undisturbed.source, root, "runner.processes=5")  # and continued by two
    assert kill_at(Moment("blocks", undisturbed.num_blocks // 2), process, root)
    assert not (root / "d/manifests").exists(), "nothing is visible before it is whole"
    outcome = check_resumed(undisturbed, root)
    assert outcome["reused"]["blocks"] >= undisturbed.num_blocks // 2


@pytest.mark.parametrize("target", ["pool process", pytest.param("fork server", marks=pytest.mark.slow)])
def test_a_killed_pool_costs_nothing(target: Target, undisturbed: Undisturbed, tmp_path: Path) -> None:
    """The job goes on to its end when the system kills a process that works for it."""
    root = tmp_path / "root"
    process = start(undisturbed.source, root)
    wait_for(Moment("blocks", undisturbed.num_blocks // 4), process, root)
    forked = [(child, child.children()) for child in psutil.Process(process.pid).children()]
    (server, workers) = next(pair for pair in forked if pair[1])
    (workers[0] if target == "pool process" else server).kill()
    finish(process)
    assert published(root) == (undisturbed.files, undisturbed.manifest)


def test_killed_while_assembling(undisturbed: Undisturbed, tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert kill_at(Moment("shards", NUM_SHARDS), start(undisturbed.source, root), root)
    outcome = check_resumed(undisturbed, root)
    assert outcome["reused"]["blocks"] == undisturbed.num_blocks


def test_a_source_that_grew_meanwhile_reuses_the_rest(undisturbed: Undisturbed, tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 120, "b": 60})
    root = tmp_path / "root"
    process = start(source, root)
    assert kill_at(Moment("shards", 1), process, root)
    blocks, _ = finished_in(root)
    write(source, {"a/00050-new.jpg": jpeg(9001)})
    outcome = finish(start(source, root))
    assert outcome["num_records"] == 181
    assert blocks - 3 <= outcome["reused"]["blocks"] < blocks + 1
    assert verify(Catalog(root).open("d")).problems == []


def test_a_polite_stop_is_resumable_too(undisturbed: Undisturbed, tmp_path: Path) -> None:
    root = tmp_path / "root"
    process = start(undisturbed.source, root)
    moment, began = Moment("blocks", 3), time.monotonic()
    while not moment.is_due(began, root):
        assert process.poll() is None
        time.sleep(0.005)
    tree = tree_of(process)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    _, alive = psutil.wait_procs(tree, timeout=60)
    assert not alive
    assert check_resumed(undisturbed, root)["reused"]["blocks"] >= 3


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_killed_at_random_moments(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """Fifty runs, each killed once at a random moment, and then finished."""
    kills = 0
    # A run may be faster than the undisturbed one was, and over before its moment: it does not count.
    for number, moment in enumerate(islice(moments(undisturbed, seed=50), 2 * NUM_KILLS)):
        root = tmp_path / f"root{number}"
        kills += kill_at(moment, start(undisturbed.source, root), root)
        check_resumed(undisturbed, root)
        shutil.rmtree(root)
        if kills == NUM_KILLS:
            return
    pytest.fail(f"only {kills} of {2 * NUM_KILLS} runs were killed before their end")


@pytest.mark.slow
def test_one_run_killed_ten_times(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """A run that is killed again and again still comes to the same end."""
    root = tmp_path / "root"
    rng = random.Random(3)
    kills = 0
    for _ in range(10):
        blocks, _shards = finished_in(root)
        moment = Moment("blocks", min(blocks + rng.randint(0, 2), undisturbed.num_blocks))
        kills += kill_at(moment, start(undisturbed.source, root), root)
    assert kills == 10
    assert not (root / "d/manifests").exists()
    check_resumed(undisturbed, root)
