"""Two ranks on two hosts, which are network namespaces, while the link between them is interrupted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmill.training.ranks.launchers.outer import RANK_LOST
from tests.samples.clusters.two_hosts import ADDRESSES, Cut, TwoHosts, why_not
from tests.samples.datasets.published import coloured, publish
from tests.samples.ranks.outer_ranks import OuterRanks, command, meeting, steps_done
from tests.samples.ranks.supervised import consumed_by, relative_distance
from tests.samples.training.trainer import settings, train

COUNTS = {"train": {"a": 30, "b": 15, "c": 5}, "validation": {"a": 6, "b": 4, "c": 3}}
CUTS: tuple[Cut, ...] = ("link down", "packets lost")
PEER_SECONDS = 20
STEP_SECONDS = 45
# Both ends notice by themselves, and need a moment to end.
WITHIN_SECONDS = PEER_SECONDS + STEP_SECONDS + 30
SHORT_SECONDS = 5.0
REL = 1e-4
CONFIG = settings(
    optimizer={"name": "sgd", "learning_rate": 0.05},
    model={"dropout": 0.0},
    run={"epochs": 8, "checkpoint_every_steps": 3, "trace_records": True, "deterministic": True},
    ranks={"peer_timeout_seconds": PEER_SECONDS, "step_timeout_seconds": STEP_SECONDS},
)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A root with a dataset, and the result of a training on one device."""
    root = tmp_path_factory.mktemp("local")
    publish(root / "datasets", coloured(COUNTS), name="colours")
    return root, train(root, "colours", CONFIG)


@pytest.fixture
def hosts() -> Iterator[TwoHosts]:
    if reason := why_not():
        pytest.skip(reason)
    with TwoHosts() as hosts:
        yield hosts


def start(root: Path, hosts: TwoHosts) -> OuterRanks:
    """Start a rank on each host."""
    argv = command(root, "colours@1", CONFIG)
    return OuterRanks(argv, meeting(host=ADDRESSES[0]), root / "logs", hosts.prefixes)


@pytest.mark.parametrize("how", CUTS)
def test_a_short_interruption_costs_a_start_at_most(
    local: tuple[Path, dict[str, Any]], tmp_path: Path, hosts: TwoHosts, how: Cut
) -> None:
    (tmp_path / "datasets").symlink_to(local[0] / "datasets")
    with start(tmp_path, hosts) as ranks:
        ranks.wait_for_steps(tmp_path, 5)
        hosts.cut(how)
        time.sleep(SHORT_SECONDS)
        during = steps_done(tmp_path)
        hosts.mend(how)
        statuses = ranks.finish()
        assert during < local[1]["steps"], "the link was cut too late"
        print(f"{how} for {SHORT_SECONDS:.0f} s at step {during}: {statuses}")
        assert statuses in ([0, 0], [RANK_LOST, RANK_LOST])
        result = ranks.result() if statuses == [0, 0] else None
    if result is None:
        with start(tmp_path, hosts) as ranks:
            assert ranks.finish() == [0, 0], ranks.said(0)
            result = ranks.result()
    assert consumed_by(result) == consumed_by(local[1])
    assert relative_distance(result, local[1]) <= REL


@pytest.mark.parametrize("how", CUTS)
def test_a_long_interruption_ends_both_ranks_and_they_go_on_when_started_again(
    local: tuple[Path, dict[str, Any]], tmp_path: Path, hosts: TwoHosts, how: Cut
) -> None:
    (tmp_path / "datasets").symlink_to(local[0] / "datasets")
    with start(tmp_path, hosts) as ranks:
        ranks.wait_for_steps(tmp_path, 5)
        hosts.cut(how)
        began = time.monotonic()
        assert ranks.finish(WITHIN_SECONDS + 60) == [RANK_LOST, RANK_LOST]
        print(f"{how}: both ended within {time.monotonic() - began:.0f} s")
        assert time.monotonic() - began < WITHIN_SECONDS
        assert steps_done(tmp_path) < local[1]["steps"]
        hosts.mend(how)
    with start(tmp_path, hosts) as ranks:
        assert ranks.finish() == [0, 0], ranks.said(0)
        result = ranks.result()
    assert consumed_by(result) == consumed_by(local[1])
    assert relative_distance(result, local[1]) <= REL
