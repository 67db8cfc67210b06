"""Prepare on a real Flink cluster: a JobManager, two TaskManagers, Beam's job server, pools of workers.

Everything that can die is killed in the middle. The bytes are always those of the embedded runner.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from tests.faults.hostile.deeds import WIDTH, height_of
from tests.samples.clusters.flink import REPOSITORY, Cluster, running_cluster
from tests.samples.images.photos import jpeg, make_photos, png, write
from tests.samples.preparing.command import prepare_command
from tests.samples.waiting import before_its_end, eventually

HOSTILE = REPOSITORY / "tests/faults/hostile"
SLOW_IMAGES = 16  # each takes three seconds to decode
NUM_RECORDS = 66 + SLOW_IMAGES
DEEDS = {"segfault": 1, "sleep_with_the_gil": 2, "eat": 3}
END_SECONDS = 1800.0
SETTINGS = (
    "runner.block_images=4",
    "shards.num_shards=2",
    "image.size=32",
    "runner.image_seconds=15",
    f"runner.image_memory_bytes={512 << 20}",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("flink"), str(HOSTILE)) as one:
        yield one


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs, a copy, a truncated one, and many that take long."""
    folder = make_photos(tmp_path_factory.mktemp("photos"), {"a": 36, "b": 30})
    write(folder, {"b/copy.jpg": (folder / "a/00001.jpg").read_bytes(), "b/broken.jpg": jpeg(900)[:-60]})
    slow = height_of("sleep_3_seconds")
    for number in range(SLOW_IMAGES):
        write(folder, {f"{'ab'[number % 2]}/000{number:02d}-slow.png": png(1000 + number, slow, WIDTH)})
    return folder


@pytest.fixture(scope="module")
def expected(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files that the embedded runner writes."""
    root = tmp_path_factory.mktemp("embedded")
    done = finish(start(source, root))
    assert done["num_records"] == NUM_RECORDS
    return stored(root)


@pytest.fixture
def free_cluster(cluster: Cluster) -> Cluster:
    """The cluster, when it has nothing to do and all its parts are there."""
    assert eventually(cluster.slots_are_free, 240.0)
    return cluster


def start(
    source: Path, root: Path, cluster: Cluster | None = None, *more_settings: str
) -> subprocess.Popen[str]:
    """Start prepare in a session of its own, on a cluster or embedded."""
    where = [] if cluster is None else ["--config", str(cluster.config)]
    settings = [word for setting in (*SETTINGS, *more_settings) for word in ("--set", setting)]
    root.mkdir(parents=True, exist_ok=True)
    with (root / "said").open("ab") as said:
        return subprocess.Popen(
            [*prepare_command(source, root), "--json", "--failure-budget", "0.5", *where, *settings],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(HOSTILE)},
            start_new_session=True,
        )


def end(process: subprocess.Popen[str]) -> int:
    """Wait for the end, and return the status."""
    process.communicate(timeout=END_SECONDS)
    return process.returncode


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a command with its whole session."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a good end, and return the result."""
    output, _ = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 0, output
    outcome: dict[str, Any] = json.loads(output.splitlines()[-1])
    return outcome


def stored(root: Path) -> dict[str, bytes]:
    """Path -> bytes of shards, indexes, inputs and all else that lies beside them, but for the report."""
    data = root / "d/data"
    files = {str(path.relative_to(data)): path for path in data.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in sorted(files.items()) if path.suffix != ".html"}


def said(root: Path) -> str:
    """The standard error of the commands on this root."""
    return (root / "said").read_text()


def num_blocks(root: Path) -> int:
    """The number of finished blocks."""
    return len(list(root.glob("d/spool/*/blocks/*.arrow")))


def wait_for_blocks(root: Path, process: subprocess.Popen[str], number: int = 3) -> None:
    """Wait until some blocks are finished; many are not yet."""
    before_its_end(
        lambda: True if num_blocks(root) >= number else None, lambda: process.poll() is not None, END_SECONDS
    )
    assert not (root / "d/manifests").exists()


def assert_as_expected(root: Path, expected: dict[str, bytes]) -> None:
    assert stored(root) == expected
    assert verify(Catalog(root).open("d")).problems == []
    assert not list(root.glob("d/spool/*/blocks"))


def report(line: str) -> None:
    print(f"[flink] {line}", flush=True)


def test_the_same_bytes_as_embedded_and_progress_that_moves(
    free_cluster: Cluster, source: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    began = time.monotonic()
    outcome = finish(start(source, tmp_path, free_cluster))
    assert outcome["num_records"] == NUM_RECORDS
    assert outcome["num_duplicates"] == 1
    assert sum(outcome["quarantine"].values()) == 1
    assert_as_expected(tmp_path, expected)
    counts = {int(number) for number in re.findall(r"encode: (\d+) of \d+ images", said(tmp_path))}
    assert len([number for number in counts if 0 < number < NUM_RECORDS]) >= 2, said(tmp_path)
    logs = [(free_cluster.folder / f"log/workers-{number}.log").read_text() for number in (1, 2)]
    assert all("worker 1-1 started" in log for log in logs), "both TaskManagers had a worker of their own"
    report(f"undisturbed: {time.monotonic() - began:.0f} s, stages {outcome['stage_seconds']}")


def test_a_plan_by_ranges_has_the_same_bytes(
    free_cluster: Cluster, source: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    before = len(free_cluster.jobs())
    outcome = finish(start(source, tmp_path, free_cluster, "runner.plan_ranges=3"))
    assert outcome["num_records"] == NUM_RECORDS
    assert_as_expected(tmp_path, expected)
    num_jobs = len(free_cluster.jobs()) - before
    assert num_jobs > 2, "the plan was made by jobs of the cluster"
    report(f"planned by 3 ranges: {num_jobs} jobs, stages {outcome['stage_seconds']}")


@pytest.mark.parametrize("what", ["taskmanager-1", "workers-2", "a Python worker"])
def test_a_part_killed_in_the_middle_costs_time_and_nothing_else(
    what: str, free_cluster: Cluster, source: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    process = start(source, tmp_path, free_cluster)
    wait_for_blocks(tmp_path, process)
    began = time.monotonic()
    if what == "a Python worker":
        max(free_cluster.workers(2), key=psutil.Process.create_time).kill()
    else:
        free_cluster.kill(what)
    finish(process)
    assert_as_expected(tmp_path, expected)
    report(f"{what} killed: the command went on, and published {time.monotonic() - began:.0f} s later")


@pytest.mark.parametrize("what", ["jobserver", "jobmanager"])
def test_a_server_killed_ends_the_command_which_continues_when_run_again(
    what: str, free_cluster: Cluster, source: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    process = start(source, tmp_path, free_cluster)
    wait_for_blocks(tmp_path, process)
    began = time.monotonic()
    free_cluster.kill(what)
    assert end(process) == 4
    ended = time.monotonic() - began
    assert "run the same command again" in said(tmp_path)
    assert "Traceback" not in said(tmp_path)
    assert eventually(free_cluster.slots_are_free, 240.0)
    assert free_cluster.num_running() == 0, "no job is left, lost or not"
    outcome = finish(start(source, tmp_path, free_cluster))
    assert outcome["reused"]["blocks"] >= 3
    assert_as_expected(tmp_path, expected)
    report(f"{what} killed: command ended with 4 after {ended:.0f} s, the same command then published")


def test_an_orphaned_job_that_still_writes_changes_nothing_of_what_a_second_run_publishes(
    free_cluster: Cluster, source: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    """The command and the job server die; the second run works on this machine while Flink still writes."""
    process = start(source, tmp_path, free_cluster)
    wait_for_blocks(tmp_path, process)
    kill(process)
    free_cluster.kill("jobserver")
    orphaned_at = num_blocks(tmp_path)
    assert eventually(lambda: num_blocks(tmp_path) > orphaned_at), "it still writes"
    second = start(source, tmp_path)
    assert free_cluster.num_running() == 1
    outcome = finish(second)
    assert outcome["reused"]["blocks"] >= 3
    assert eventually(lambda: free_cluster.num_running() == 0, 300.0), "the orphan ends by itself"
    assert stored(tmp_path) == expected
    assert verify(Catalog(tmp_path).open("d")).problems == []
    assert finish(start(source, tmp_path, free_cluster))["unchanged"]
    assert not list(tmp_path.glob("d/spool/*/blocks")), "what the orphan wrote late is gone too"
    report(f"orphan: {orphaned_at} blocks were finished when it lost its command")


def test_a_command_killed_leaves_a_job_that_the_same_command_cancels_and_continues(
    free_cluster: Cluster, source: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    process = start(source, tmp_path, free_cluster)
    wait_for_blocks(tmp_path, process)
    kill(process)
    (orphan,) = [job for job, state in free_cluster.jobs().items() if state == "RUNNING"]
    outcome = finish(start(source, tmp_path, free_cluster))
    assert free_cluster.jobs()[orphan] == "CANCELED"
    assert "cancelled 1 Flink job of an earlier run" in said(tmp_path)
    assert outcome["reused"]["blocks"] >= 3
    assert_as_expected(tmp_path, expected)


def test_a_stopped_command_ends_its_flink_job_and_can_be_continued(
    free_cluster: Cluster, source: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    idle = {*free_cluster.workers(1), *free_cluster.workers(2)}  # Beam leaves some behind after a restart
    process = start(source, tmp_path, free_cluster)
    wait_for_blocks(tmp_path, process)
    began = time.monotonic()
    process.terminate()
    assert end(process) == 130
    ended = time.monotonic() - began
    assert eventually(lambda: free_cluster.num_running() == 0)
    assert eventually(lambda: {*free_cluster.workers(1), *free_cluster.workers(2)} <= idle)
    assert not (tmp_path / "d/manifests").exists()
    outcome = finish(start(source, tmp_path, free_cluster))
    assert outcome["reused"]["blocks"] >= 3
    assert_as_expected(tmp_path, expected)
    report(f"stopped: the command ended after {ended:.1f} s")


def test_hostile_images_cost_their_rows(free_cluster: Cluster, tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 20, "b": 16})
    write(source, {f"a/00013-{deed}.png": png(900, height_of(deed), WIDTH) for deed in DEEDS})
    embedded, flink = tmp_path / "embedded", tmp_path / "flink"
    for outcome in (finish(start(source, embedded)), finish(start(source, flink, free_cluster))):
        reasons = ("decoder_crashed", "decoder_hung", "decoder_out_of_memory")
        assert outcome["quarantine"] == dict.fromkeys(reasons, 1)
        assert outcome["num_records"] == 36
    assert stored(flink) == stored(embedded)
    assert verify(Catalog(flink).open("d")).problems == []


def test_a_cluster_whose_script_is_killed_leaves_no_process(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "flink", task_managers=1) as one:
        tree = psutil.Process(one.process.pid).children(recursive=True)
        assert len(tree) >= 4
        one.process.kill()
        _, alive = psutil.wait_procs(tree, timeout=60)
        assert not alive


def test_without_a_restart_strategy_the_command_ends_and_continues_when_run_again(
    source: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    with running_cluster(tmp_path / "flink", str(HOSTILE), 1, "--no-restarts", "--slots", "2") as one:
        process = start(source, root, one)
        wait_for_blocks(root, process)
        began = time.monotonic()
        max(one.workers(1), key=psutil.Process.create_time).kill()
        assert end(process) == 4, said(root)
        ended = time.monotonic() - began
        assert "run the same command again" in said(root)
        assert "Traceback" not in said(root)
        assert eventually(one.slots_are_free, 240.0)
        outcome = finish(start(source, root, one))
    assert outcome["reused"]["blocks"] >= 3
    assert_as_expected(root, expected)
    report(
        f"worker killed, no restarts: command ended with 4 after {ended:.0f} s, the same command published"
    )
