"""Ranks on a real Ray cluster of two machines equal ranks on one, also when a machine is lost."""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from shardmill.training.ranks.devices import RankCount
from shardmill.training.ranks.supervision.silence import Limits
from shardmill.training.ranks.supervision.supervisor import RankPlan, Supervisor
from tests.samples.clusters.ray_cluster import RayCluster
from tests.samples.ranks.local_ranks import CONFIG
from tests.samples.ranks.supervised import assert_same_training
from tests.samples.training.trainer import Trainer, train

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed: pip install 'shardmill[ray]'", allow_module_level=True)


@pytest.fixture
def cluster() -> Iterator[RayCluster]:
    """A cluster of two machines, the second of which may be lost."""
    with RayCluster() as cluster:
        for _ in range(2):
            cluster.add()
        yield cluster


def on_ray(cluster: RayCluster, workers: str) -> dict[str, Any]:
    """The training with ranks on the cluster."""
    ray = {"address": cluster.address, "placement": "SPREAD"}
    return {**CONFIG, "ranks": {"workers": workers, "launcher": "ray", "ray": ray}}


def ranks_alive(text: str) -> list[int]:
    """The processes of ranks whose command names ``text``."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        is_rank = "shardmill.training.train_rank" in words or "tests.samples.ranks.fake_rank" in words
        if is_rank and any(text in word for word in words) and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


def test_two_machines_train_what_one_trains(
    local: tuple[Path, dict[str, Any]], root: Path, cluster: RayCluster
) -> None:
    result = train(root, "colours", on_ray(cluster, "2"))
    assert result["num_replicas"] == 2
    assert result["restarts"] == []
    assert_same_training(result, local[1])
    logs = Path(result["run_dir"]) / "logs" / "ranks"
    assert {"rank-0.log", "rank-1.log"} <= {path.name for path in logs.iterdir()}
    assert ranks_alive(str(root)) == []


def test_a_lost_machine_costs_its_rank_only(
    local: tuple[Path, dict[str, Any]], root: Path, cluster: RayCluster
) -> None:
    trainer = Trainer(root, "colours", on_ray(cluster, "1..2"))
    seen = 0
    for event in trainer.events():
        seen += event["event"] == "metrics" and event["split"] == "train"
        if seen == 9:
            break
    cluster.kill(list(cluster.machines)[1])
    status, out, err = trainer.finish()
    assert status == 0, err
    result = json.loads(out.splitlines()[-1])
    (restart,) = result["restarts"]
    assert restart["num_ranks"] == 2
    assert restart["step"] >= 9
    assert result["num_replicas"] == 1
    assert_same_training(result, local[1])
    assert ranks_alive(str(root)) == []


def test_a_signal_saves_and_the_same_command_on_one_machine_goes_on(
    local: tuple[Path, dict[str, Any]], root: Path, cluster: RayCluster
) -> None:
    trainer = Trainer(root, "colours", on_ray(cluster, "2"))
    assert trainer.signal_after(5, signal.SIGTERM)
    status, _, err = trainer.finish()
    assert status == 75, err
    assert ranks_alive(str(root)) == []
    assert_same_training(train(root, "colours", {**CONFIG, "ranks": {"workers": "1"}}), local[1])


def test_ranks_follow_the_machines_that_come_and_go(tmp_path: Path, cluster: RayCluster) -> None:
    """With fake ranks: a worker of Ray dies, a machine goes, another comes."""
    ray = pytest.importorskip("ray")
    from shardmill.training.ranks.launchers.ray import RayHosts
    from shardmill.training.ranks.launchers.settings import RaySettings

    seen: list[int] = []

    def attempts() -> int:
        return len(list(tmp_path.glob("attempt-*-0")))

    def wait_for(attempt: int) -> None:
        until = time.monotonic() + 240
        while attempts() < attempt and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(1.0)  # some steps
        seen.append(len(ranks_alive(str(tmp_path))))

    def disturb() -> None:
        wait_for(1)
        worker = psutil.Process(ranks_alive(str(tmp_path))[0]).parent()
        assert worker is not None
        worker.kill()
        wait_for(2)
        cluster.kill(list(cluster.machines)[1])
        wait_for(3)
        cluster.add()
        wait_for(4)
        (tmp_path / "enough").touch()

    ray.init(cluster.address, log_to_driver=False, logging_level="error")
    disturber = threading.Thread(target=disturb)
    try:
        options = RaySettings(placement="SPREAD")
        hosts = RayHosts(RankCount(1, 2), options, on_cpu=True, look_seconds=2.0)
        command = [sys.executable, "-m", "tests.samples.ranks.fake_rank", str(tmp_path), "1000000", "[]"]
        plan = RankPlan(
            command=command,
            log_folder=tmp_path / "logs",
            limits=Limits(start=120.0, step=60.0, stop=60.0),
            max_restarts=3,
            preemption_signals=(signal.SIGTERM,),
            hosts=hosts,
            more_parts=lambda _num_ranks: None,
        )
        disturber.start()
        result = Supervisor(plan).run()
        hosts.release()
    finally:
        disturber.join()
        ray.shutdown()
    assert seen == [2, 2, 1, 2]
    assert result["num_ranks"] == 2
    assert [row["reason"] for row in result["restarts"]] == ["machine", "machine"]
    assert ranks_alive(str(tmp_path)) == []
