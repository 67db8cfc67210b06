"""Ranks on two machines whose run is in a bucket: they share no folder of runs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmill.infra.storage.filesystem import Storage
from shardmill.training.ranks.launchers.outer import RANK_LOST
from tests.samples.datasets.published import coloured, publish
from tests.samples.ranks.local_ranks import CONFIG as LOCAL
from tests.samples.ranks.local_ranks import COUNTS
from tests.samples.ranks.outer_ranks import OuterRanks, command, tf_config
from tests.samples.ranks.supervised import assert_same_training
from tests.samples.stores.object_store import ObjectStore, serve_with_credentials
from tests.samples.training.trainer import train

CONFIG = {
    **LOCAL,
    # Slow enough to be killed before the end.
    "model": {**LOCAL["model"], "name": "tests.samples.models.slow_rank_model"},
    "run": {**LOCAL["run"], "epochs": 5},
    "ranks": {"peer_timeout_seconds": 20, "step_timeout_seconds": 60},
}


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with serve_with_credentials("ranks-of-tests") as running:
        yield running


class Machines:
    """Two machines that have nothing but the store in common, each with a rank."""

    def __init__(self, folder: Path, name: str) -> None:
        self.roots = [folder / f"{name}-{rank}" for rank in range(2)]
        self.variables = [
            {**variables, "SHARDMILL_RUNS_COPY": str(root / "runs")}
            for variables, root in zip(tf_config(), self.roots, strict=True)
        ]


@pytest.mark.slow
def test_ranks_go_on_from_the_store_when_the_copies_are_gone(store: ObjectStore, tmp_path: Path) -> None:
    publish(tmp_path / "datasets", coloured(COUNTS), name="colours")
    undisturbed = train(tmp_path, "colours", {**CONFIG, "ranks": {"workers": "2"}})
    location, logs = store.location("runs"), tmp_path / "logs"
    argv = command(tmp_path, "colours@1", CONFIG)
    argv[argv.index("--runs") + 1] = location

    first = Machines(tmp_path, "first")
    with OuterRanks(argv, first.variables, logs) as ranks:
        ranks.wait_for_steps(first.roots[0], 8)
        (trainer,) = ranks.trainers(1)
        trainer.kill()
        assert ranks.finish() == [RANK_LOST, RANK_LOST], ranks.said(0)
    assert any("/checkpoints/step-" in key for key in store.all_keys("runs"))
    assert not first.roots[1].exists(), "the other rank writes nothing"

    second = Machines(tmp_path, "second")
    with OuterRanks(argv, second.variables, logs) as ranks:
        ranks.wait_for_steps(second.roots[0], 16)
        assert "resuming at epoch" in ranks.said(0)
        ranks.signal(0, signal.SIGKILL)  # nothing more is uploaded, and the lease is left behind
        assert ranks.finish() == [-signal.SIGKILL, RANK_LOST], ranks.said(1)
    assert not any(key.endswith("/result.json") for key in store.all_keys("runs"))

    third = Machines(tmp_path, "third")
    with OuterRanks(argv, third.variables, logs) as ranks:
        assert ranks.finish() == [0, 0], ranks.said(0) + ranks.said(1)
        result = ranks.result()
    assert "resuming at epoch" in ranks.said(0)
    assert_same_training(result, undisturbed)
    assert Storage.at(location).exists(f"{Path(result['run_dir']).name}/result.json")

    with OuterRanks(argv, Machines(tmp_path, "fourth").variables, logs) as ranks:
        assert ranks.finish() == [0, 0], "ranks that are started once more find the run finished"
        assert ranks.result()["unchanged"]
