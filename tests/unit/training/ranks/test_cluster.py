"""The addresses of the other ranks, from the variables of outer systems."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from shardmill.infra.errors import ConfigError, EnvironmentFault, UsageError
from shardmill.infra.processes.ports import free_port
from shardmill.infra.processes.process import num_cpus
from shardmill.training.config import TrainConfig, with_devices
from shardmill.training.ranks.cluster import Cluster, Meeting, cluster_from_environment, meet
from shardmill.training.ranks.devices import DeviceRequest, RankCount
from shardmill.training.ranks.launchers.local import LocalHosts

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def tf_config(jobs: dict[str, list[str]], kind: str, index: int) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": jobs, "task": {"type": kind, "index": index}})}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"TF_CONFIG": ""}, None),
        ({"TF_CONFIG": "{}"}, None),
        (tf_config({"worker": ["a:1"]}, "worker", 0), None),
        (tf_config({"worker": ["a:1", "b:2"]}, "worker", 1), Cluster(("a:1", "b:2"), 1)),
        (tf_config({"worker": ["b:2"], "chief": ["a:1"]}, "chief", 0), Cluster(("a:1", "b:2"), 0)),
        (tf_config({"worker": ["b:2"], "chief": ["a:1"]}, "worker", 0), Cluster(("a:1", "b:2"), 1)),
        (TORCHRUN, Meeting(1, 4, "10.0.0.1", 29500)),
        ({**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "True"}, Meeting(1, 4, "10.0.0.1", 29501)),
        ({**TORCHRUN, "WORLD_SIZE": "1", "RANK": "0"}, None),
        ({"WORLD_SIZE": "4"}, None),
    ],
)
def test_the_environment_says_which_rank_this_is(environment: dict[str, str], expected: Any) -> None:
    assert cluster_from_environment(environment) == expected


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"TF_CONFIG": "{"}, "TF_CONFIG is not what TensorFlow expects"),
        (tf_config({"ps": ["a:1"], "worker": ["b:2"]}, "worker", 0), "only chief and worker train"),
        (tf_config({"worker": ["a:1", "b:2"]}, "worker", 2), "rank 2 of 2"),
        ({**TORCHRUN, "RANK": "4"}, "RANK=4 with WORLD_SIZE=4"),
        ({**TORCHRUN, "WORLD_SIZE": "four"}, "WORLD_SIZE='four' is not a number"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "not MASTER_ADDR and MASTER_PORT"),
    ],
)
def test_a_wrong_environment_is_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        cluster_from_environment(environment)
    assert message in str(caught.value)


def test_ranks_of_one_machine_share_it() -> None:
    addresses = ("a:1", "b:1", "a:2", "[::1]:1", "[::1]:2")
    places = [Cluster(addresses, rank).place_on_machine for rank in range(5)]
    assert places == [(0, 2), (0, 1), (1, 2), (0, 2), (1, 2)]
    threads = [Cluster(addresses, rank).threads for rank in range(2)]
    assert threads == [max(1, num_cpus() // 2), num_cpus()]


def test_ranks_learn_the_addresses_of_all() -> None:
    port = free_port()
    found: dict[int, Cluster] = {}

    def join(rank: int) -> None:
        found[rank] = meet(Meeting(rank, 3, "localhost", port), 60.0)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in (2, 1, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {rank: cluster.rank for rank, cluster in found.items()} == {0: 0, 1: 1, 2: 2}
    (addresses,) = {cluster.addresses for cluster in found.values()}
    assert len(set(addresses)) == 3


def test_missing_ranks_are_named() -> None:
    with pytest.raises(EnvironmentFault, match="ranks 1, 2 of 3 did not start in time"):
        meet(Meeting(0, 3, "localhost", free_port()), 0.2)
    with pytest.raises(EnvironmentFault, match="rank 0 did not answer"):
        meet(Meeting(1, 3, "localhost", free_port()), 0.2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all", DeviceRequest(None)),
        ("one", DeviceRequest(1)),
        ("3", DeviceRequest(3, 3)),
        ("cpu:2", DeviceRequest(2, 2, on_cpu=True)),
    ],
)
def test_devices_are_asked_for(text: str, expected: DeviceRequest) -> None:
    assert DeviceRequest.parse(text) == expected


@pytest.mark.parametrize(
    ("devices", "workers", "message"),
    [
        ("gpu", None, "must be all, one, a number of GPUs, or cpu:N"),
        ("0", None, "must be all"),
        ("cpu:0", None, "must be all"),
        (None, "0", "must be a number of ranks, or a range such as 2..4"),
        (None, "4..2", "the range begins above its end; write 2..4"),
        (None, "2-4", "must be a number of ranks"),
    ],
)
def test_wrong_devices_and_workers_are_refused(
    devices: str | None, workers: str | None, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        with_devices(TrainConfig(), devices, workers)
    assert message in str(caught.value)


def test_devices_and_workers_of_the_command_become_settings() -> None:
    config = with_devices(TrainConfig(), "cpu:2", "1..2")
    assert (config.run.devices, config.ranks.workers) == ("cpu:2", "1..2")
    assert with_devices(config, None, None) == config


@pytest.mark.parametrize(
    ("workers", "devices", "gpus", "expected"),
    [
        ("2", "all", ["0", "1", "2"], ["0", "1"]),
        ("1..4", "all", ["0", "1", "2"], ["0", "1", "2"]),
        ("1..4", "2", ["0", "1", "2"], ["0", "1"]),
        ("2", "all", [], [None, None]),
        ("2", "cpu:2", ["0", "1"], [None, None]),
    ],
)
def test_ranks_get_a_device_each(
    workers: str, devices: str, gpus: list[str], expected: list[str | None]
) -> None:
    slots = LocalHosts(RankCount.parse(workers), devices, lambda: gpus)
    assert [slot.gpu for slot in slots.choose()] == expected


def test_more_ranks_than_devices_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 3 ranks, one a device, but there are 2 devices"):
        LocalHosts(RankCount(3, 4), "all", lambda: ["0", "1"])
