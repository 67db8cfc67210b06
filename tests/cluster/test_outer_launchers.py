"""Ranks that are started by hand or by torchrun train what others train, and end when one is lost."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from shardmill.training.ranks.launchers.outer import PREEMPTED, RANK_LOST
from tests.samples.ranks.local_ranks import CONFIG as LOCAL
from tests.samples.ranks.outer_ranks import OuterRanks, command, meeting, tf_config
from tests.samples.ranks.supervised import assert_same_training

# No rank waits for another for longer.
WITHIN_SECONDS = 60
CONFIG = {**LOCAL, "ranks": {"peer_timeout_seconds": 20, "step_timeout_seconds": 40}}
TORCH = Path(os.environ.get("TORCH_PYTHON", Path(__file__).parents[2] / ".venv-torch" / "bin" / "python"))
WAYS = {"TF_CONFIG": tf_config, "RANK and WORLD_SIZE": meeting}


@pytest.mark.parametrize("way", WAYS)
def test_ranks_go_on_after_one_was_killed(local: tuple[Path, dict[str, Any]], root: Path, way: str) -> None:
    argv = command(root, "colours@1", CONFIG)
    with OuterRanks(argv, WAYS[way](), root / "logs") as ranks:
        ranks.wait_for_steps(root, 5)
        (trainer,) = ranks.trainers(1)
        trainer.kill()
        began = time.monotonic()
        assert ranks.finish(WITHIN_SECONDS + 60) == [RANK_LOST, RANK_LOST]
        assert time.monotonic() - began < WITHIN_SECONDS
        assert "rank 1 of 2 was ended by SIGKILL" in ranks.said(1)
    with OuterRanks(argv, WAYS[way](), root / "logs") as ranks:
        assert ranks.finish() == [0, 0], ranks.said(0)
        assert_same_training(ranks.result(), local[1])
    with OuterRanks(argv, WAYS[way](), root / "logs") as ranks:
        assert ranks.finish() == [0, 0], "a rank that is started once more finds the run finished"
        assert ranks.result()["unchanged"]


def test_the_end_of_the_process_that_was_started_ends_all(
    local: tuple[Path, dict[str, Any]], root: Path
) -> None:
    argv = command(root, "colours@1", CONFIG)
    with OuterRanks(argv, tf_config(), root / "logs") as ranks:
        ranks.wait_for_steps(root, 5)
        trainers = [*ranks.trainers(0), *ranks.trainers(1)]
        ranks.signal(0, signal.SIGKILL)
        assert ranks.finish(WITHIN_SECONDS + 60) == [-signal.SIGKILL, RANK_LOST]
        _, alive = psutil.wait_procs(trainers, timeout=60)
        assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


def test_a_signal_to_one_rank_saves_on_all(local: tuple[Path, dict[str, Any]], root: Path) -> None:
    argv = command(root, "colours@1", CONFIG)
    with OuterRanks(argv, tf_config(), root / "logs") as ranks:
        ranks.wait_for_steps(root, 5)
        ranks.signal(1, signal.SIGTERM)
        assert ranks.finish() == [PREEMPTED, PREEMPTED]
    with OuterRanks(argv, tf_config(), root / "logs") as ranks:
        assert ranks.finish() == [0, 0], ranks.said(0)
        assert_same_training(ranks.result(), local[1])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("present", [0, 1])
def test_a_rank_whose_peer_never_comes_ends(root: Path, way: str, present: int) -> None:
    ranks_config = {**CONFIG["ranks"], "start_timeout_seconds": 30}
    argv = command(root, "colours@1", {**CONFIG, "ranks": ranks_config})
    with OuterRanks(argv, [WAYS[way]()[present]], root / "logs") as ranks:
        assert ranks.finish(120) == [RANK_LOST]
        assert "remedy:" in ranks.said(0)


@pytest.mark.skipif(not TORCH.exists(), reason="PyTorch has no environment: run `make test-torch`")
def test_torchrun_starts_ranks_again_after_one_was_killed(root: Path) -> None:
    config = {**CONFIG, "run": {**CONFIG["run"], "framework": "torch", "checkpoint_every_steps": 3}}
    alone = root / "alone"
    alone.mkdir()
    (alone / "datasets").symlink_to(root / "datasets")
    argv = command(alone, "colours@1", config, str(TORCH))
    with OuterRanks(argv, [{}], root / "logs") as one:
        assert one.finish() == [0], one.said(0)
        expected = one.result()
    torchrun = [str(TORCH), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    told = command(root, "colours@1", config)[1:]
    # Without this, torchrun keeps one store for all its restarts, and ranks may find addresses of dead ranks
    # in it (https://github.com/pytorch/pytorch/issues/135712).
    environment = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with OuterRanks([*torchrun, "--max-restarts", "1", *told], [environment], root / "logs") as ranks:
        ranks.wait_for_steps(root, 5)
        ranks.trainers(0)[1].kill()
        assert ranks.finish() == [0], ranks.said(0)
        assert_same_training(ranks.result(), expected)
