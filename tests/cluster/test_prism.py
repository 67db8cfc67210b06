"""Prepare on Prism, Beam's local runner. Its program: SHARDMILL_PRISM, or ``prism`` on the PATH."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from shardmill.infra.processes.ports import free_port
from tests.faults.hostile.deeds import WIDTH, height_of
from tests.samples.clusters.flink import REPOSITORY
from tests.samples.images.photos import jpeg, make_photos, png, write
from tests.samples.preparing.command import prepare_command
from tests.samples.preparing.prepared import prepared, stored_bytes
from tests.samples.waiting import before_its_end, eventually

PRISM = os.environ.get("SHARDMILL_PRISM") or shutil.which("prism")
SETTINGS = ("runner.block_images=4", "shards.num_shards=2", "image.size=32", "runner.processes=1")

pytestmark = pytest.mark.skipif(
    PRISM is None,
    reason="Prism is not there: go install github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0, "
    "and set SHARDMILL_PRISM to the program",
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs, a copy, a truncated one, and some that take three seconds to decode."""
    folder = make_photos(tmp_path_factory.mktemp("photos"), {"a": 12, "b": 10})
    write(folder, {"b/copy.jpg": (folder / "a/00001.jpg").read_bytes(), "b/broken.jpg": jpeg(900)[:-60]})
    slow = height_of("sleep_3_seconds")
    return write(folder, {f"a/slow{number}.png": png(1000 + number, slow, WIDTH) for number in range(4)})


@pytest.fixture(scope="module")
def embedded(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The bytes of a version that the embedded runner made."""
    root = tmp_path_factory.mktemp("embedded")
    prepared(source, root, *_options())
    return stored_bytes(root)


def test_a_version_made_on_prism_has_the_same_bytes(
    source: Path, embedded: dict[str, bytes], tmp_path: Path
) -> None:
    before = set(_prisms())
    prepared(source, tmp_path, *_options(), *_on_prism())
    assert stored_bytes(tmp_path) == embedded
    assert eventually(lambda: set(_prisms()) <= before), "Prism goes on after its pipeline"


@pytest.mark.parametrize("victim", ["prism", "job"])
def test_a_killed_part_ends_the_job_and_the_same_command_goes_on(
    source: Path, embedded: dict[str, bytes], tmp_path: Path, victim: str
) -> None:
    command = prepare_command(source, tmp_path, *_options(), *_on_prism())
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, env=_hostile())
    before_its_end(
        lambda: next(tmp_path.glob("d/spool/*/blocks/*.arrow"), None), lambda: process.poll() is not None
    )
    if victim == "job":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        for child in psutil.Process(process.pid).children(recursive=True):
            if child.name() == "prism":
                child.kill()
    _, said = process.communicate(timeout=300)
    assert process.returncode == (-signal.SIGKILL if victim == "job" else 4), said.decode()
    assert not list(tmp_path.glob("d/manifests/*"))
    outcome = prepared(source, tmp_path, *_options(), *_on_prism())
    assert outcome["reused"]["blocks"] > 0
    assert stored_bytes(tmp_path) == embedded
    assert verify(Catalog(str(tmp_path)).open("d")).problems == []


def test_a_worker_of_an_external_pool_killed_ends_the_job_and_the_same_command_goes_on(
    source: Path, embedded: dict[str, bytes], tmp_path: Path
) -> None:
    with _worker_pool(tmp_path) as (pool, address):
        external = ["--environment_type=EXTERNAL", f"--environment_config={address}"]
        where = [*_on_prism(), "--set", f"runner.options={json.dumps(external)}"]
        root = tmp_path / "root"
        command = prepare_command(source, root, *_options(), *where)
        process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
        before_its_end(
            lambda: next(root.glob("d/spool/*/blocks/*.arrow"), None), lambda: process.poll() is not None
        )
        (worker,) = psutil.Process(pool.pid).children()
        worker.kill()
        _, said = process.communicate(timeout=300)
        assert process.returncode == 4, said
        assert "run the same command again" in said
        assert not list(root.glob("d/manifests/*"))
        outcome = prepared(source, root, *_options(), *where)
    assert outcome["reused"]["blocks"] > 0
    assert stored_bytes(root) == embedded
    assert verify(Catalog(str(root)).open("d")).problems == []


@contextlib.contextmanager
def _worker_pool(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A pool of Python workers, and its address."""
    port = free_port()
    address = f"localhost:{port}"
    log = folder / "pool.log"
    with log.open("wb") as stream:
        pool = subprocess.Popen(
            [sys.executable, "-u", "-m", "shardmill.beam_jobs.worker_pool", "--listen", address],
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=_hostile(),
        )
    try:
        before_its_end(
            lambda: True if "listening" in log.read_text() else None, lambda: pool.poll() is not None
        )
        yield pool, address
    finally:
        pool.terminate()
        pool.wait(timeout=60)
        print(log.read_text())


def _options() -> list[str]:
    return [word for setting in (*SETTINGS, "failure_budget=0.5") for word in ("--set", setting)]


def _on_prism() -> list[str]:
    return ["--set", "runner.name=prism", "--set", f"runner.prism_program={PRISM}"]


def _hostile() -> dict[str, str]:
    """Environment variables that make images of the hostile tests decode slowly."""
    return {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'tests/faults/hostile'}{os.pathsep}{REPOSITORY}"}


def _prisms() -> list[int]:
    return [process.pid for process in psutil.process_iter(["name"]) if process.info["name"] == "prism"]
