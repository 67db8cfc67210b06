"""The same pipelines on Beam's portable runner: a job server, and workers of another process.

The workers come from an EXTERNAL pool, which starts bare ``python`` from PATH.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from shardmill.infra.processes.ports import free_port, free_ports
from tests.faults.hostile.deeds import WIDTH, height_of
from tests.samples.images.photos import jpeg, make_photos, png, write
from tests.samples.preparing.command import prepare_command
from tests.samples.preparing.prepared import prepare_here

REPOSITORY = Path(__file__).parents[3]
HOSTILE = REPOSITORY / "tests/faults/hostile"
START_SECONDS = 90.0


@dataclass(frozen=True)
class Service:
    """A job server with its worker pool, each in a session of its own.

    Attributes:
        options: that lead there, for runner.options.
        pool_log: what the pool says.
    """

    options: list[str]
    pool_log: Path


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
            return
        time.sleep(0.1)
    pytest.fail(f"nothing listens at port {port}:\n{log.read_text()}")


@contextlib.contextmanager
def running(module: str, *arguments: str, port: int, log: Path, path: str = "") -> Iterator[None]:
    """A service of Beam's, and at the end nothing that it started.

    Args:
        path: more folders for PYTHONPATH.
    """
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{path}{os.pathsep}{REPOSITORY}",
    }
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
    tree = []
    try:
        wait_for_port(port, process, log)
        yield
        tree = psutil.Process(process.pid).children(recursive=True)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=120)
        _, alive = psutil.wait_procs(tree, timeout=60)
        assert not alive


@contextlib.contextmanager
def running_service(folder: Path, path: str = "") -> Iterator[Service]:
    """A job server and a worker pool.

    Args:
        folder: of their logs.
        path: more folders for PYTHONPATH of the workers.
    """
    job_port, pool_port = free_ports(2)
    runners = "apache_beam.runners"
    server = running(
        f"{runners}.portability.local_job_service_main",
        f"--port={job_port}",
        f"--staging_dir={folder / 'staging'}",
        port=job_port,
        log=folder / "server.log",
    )
    pool = running(
        f"{runners}.worker.worker_pool_main",
        f"--service_port={pool_port}",
        port=pool_port,
        log=folder / "pool.log",
        path=path,
    )
    with server, pool:
        options = [
            f"--job_endpoint=localhost:{job_port}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{pool_port}",
            "--job_server_timeout=120",
        ]
        yield Service(options, folder / "pool.log")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running_service(tmp_path_factory.mktemp("beam")) as one:
        yield one


def prepare(
    source: Path, root: Path, *settings: str, name: str = "d", path: str = ""
) -> subprocess.CompletedProcess[str]:
    given = ("runner.block_images=8", "shards.num_shards=2", "image.size=32", *settings)
    argv = prepare_command(source, root, dataset=name)
    argv += ["--json", "--failure-budget", "0.5", *(word for one in given for word in ("--set", one))]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=600, check=False, cwd=REPOSITORY, env=environment
    )


def on(service: Service) -> tuple[str, str]:
    return "runner.name=portable", f"runner.options={json.dumps(service.options)}"


def stored(root: Path) -> dict[str, bytes]:
    """Path -> bytes of shards, indexes, inputs and all else that lies beside them, but for the report."""
    data = root / "d/data"
    files = {str(path.relative_to(data)): path for path in data.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in sorted(files.items()) if path.suffix != ".html"}


def test_the_same_bytes_as_embedded(service: Service, tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 40, "b": 25})
    write(source, {"b/copy.jpg": (source / "a/00001.jpg").read_bytes(), "b/broken.jpg": jpeg(900)[:-60]})
    outcomes: list[dict[str, Any]] = []
    for root, settings in (("embedded", ()), ("portable", on(service))):
        done = prepare(source, tmp_path / root, *settings)
        assert done.returncode == 0, done.stderr
        outcomes.append(json.loads(done.stdout.splitlines()[-1]))
    assert stored(tmp_path / "portable") == stored(tmp_path / "embedded")
    assert len(stored(tmp_path / "portable")) >= 2 * 3 * 2 + 1
    counts = [
        {key: outcome[key] for key in ("num_records", "num_duplicates", "quarantine", "splits")}
        for outcome in outcomes
    ]
    assert counts[0] == counts[1]
    assert counts[0]["num_records"] == 65
    assert "Starting worker" in service.pool_log.read_text(), "the work was done by the pool"
    assert verify(Catalog(tmp_path / "portable").open("d")).problems == []


@pytest.mark.slow
def test_hostile_images_cost_their_rows_on_remote_workers_too(tmp_path: Path) -> None:
    """A crash, a hang and a glut in a remote worker: the same rows and bytes as embedded."""
    source = make_photos(tmp_path / "source", {"a": 30, "b": 20})
    deeds = ("segfault", "exit", "sleep_with_the_gil", "eat")
    write(source, {f"a/00013-{deed}.png": png(900, height_of(deed), WIDTH) for deed in deeds})
    limits = ("runner.image_seconds=2", f"runner.image_memory_bytes={256 << 20}")
    with running_service(tmp_path, str(HOSTILE)) as hostile:
        for root, settings, path in (("embedded", (), str(HOSTILE)), ("portable", on(hostile), "")):
            done = prepare(source, tmp_path / root, *limits, *settings, path=path)
            assert done.returncode == 0, done.stderr
            outcome = json.loads(done.stdout.splitlines()[-1])
            expected = {"decoder_crashed": 2, "decoder_hung": 1, "decoder_out_of_memory": 1}
            assert outcome["quarantine"] == expected
            assert outcome["num_records"] == 50
    assert stored(tmp_path / "portable") == stored(tmp_path / "embedded")


def test_what_a_remote_worker_raises_is_said_as_an_error(service: Service, tmp_path: Path) -> None:
    """A file where the folder of the shards should be: the worker's fault arrives here, with its remedy."""
    source = make_photos(tmp_path / "source", {"a": 12})
    write(tmp_path / "root", {"d/data": b"in the way"})
    done = prepare(source, tmp_path / "root", *on(service))
    assert done.returncode == 4, done.stderr
    assert "cannot write" in done.stderr
    assert "remedy: check free space and permissions" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_server_that_is_not_there(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 12})
    options = [f"--job_endpoint=localhost:{free_port()}", "--environment_type=LOOPBACK"]
    options.append("--job_server_timeout=2")
    done = prepare(source, tmp_path / "root", "runner.name=portable", f"runner.options={json.dumps(options)}")
    assert done.returncode == 4, done.stderr
    assert "job server" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "root/d/manifests").exists()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("runner.name=portable",), "no --job_endpoint"),
        (('runner.options=["--job_endpoint=x:1"]', "runner.name=portable"), "no --environment_type"),
        (('runner.options=["job_endpoint=x:1"]', "runner.name=portable"), "no option of Beam's"),
        (('runner.options=["--runner=x"]', "runner.name=portable"), "set by Shardmill"),
        (('runner.options=["--job_endpoint=x:1"]',), "the embedded runner takes none"),
        (("runner.name=portabel",), "did you mean 'portable'"),
    ],
)
def test_wrong_options(settings: tuple[str, ...], says: str, tmp_path: Path) -> None:
    given = [word for one in settings for word in ("--set", one)]
    done = prepare_here(make_photos(tmp_path / "source", {"a": 2}), tmp_path / "root", *given)
    assert done.returncode == 2
    assert says in done.stderr
    assert not (tmp_path / "root").exists()
