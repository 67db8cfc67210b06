"""Trials: in each training a random rank is killed or stopped once, in a step, during a save or at start.

``make test-ranks TRIALS=30`` prints a row for each, with the seconds from the signal until the parent has
noticed and ended all ranks, until the new ranks have found each other and built the model, and until the next
step. Every training finishes by itself, with exactly the planned records and the loss of an undisturbed run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.storage.local import TEMPORARY_PREFIX
from tests.samples.datasets.published import coloured, publish
from tests.samples.ranks.supervised import Progress, recovered, running_ranks
from tests.samples.training.rounding import near
from tests.samples.training.trainer import Trainer, settings, train

TRIALS = int(os.environ.get("TRIALS", "3"))
COUNTS = {"train": {"a": 60, "b": 31, "c": 14}, "validation": {"a": 6, "b": 4, "c": 2}}
EPOCHS, STEPS_PER_EPOCH = 20, 14
CONFIG = settings(
    model={"name": "tests.samples.models.normalized_model"},
    run={
        "epochs": EPOCHS,
        "validate_every_epochs": 10,
        "log_every_steps": 1,
        "checkpoint_every_steps": 2,
        "trace_records": True,
        "deterministic": True,
    },
)
BY_RANKS = {**CONFIG, "ranks": {"workers": "2"}}
MOMENTS = ("in a step", "during a save", "at start")


def wait_for(moment: str, trainer: Trainer, progress: Progress, chance: random.Random, root: Path) -> None:
    """Wait for a random moment of a kind."""
    while len(running_ranks(trainer)) < 2:
        time.sleep(0.02)
    if moment == "at start":
        time.sleep(chance.uniform(0.0, 6.0))
        return
    until = chance.randint(3, EPOCHS * STEPS_PER_EPOCH // 3)
    while progress.steps < until and not progress.is_over:
        time.sleep(0.005)
    while moment == "during a save" and not _saves(root) and not progress.is_over:
        pass  # a save takes milliseconds


def _saves(root: Path) -> bool:
    """Whether a checkpoint is being written."""
    return any(
        path.name.startswith(TEMPORARY_PREFIX)
        for folder in (root / "runs").glob("*/checkpoints")
        for path in folder.iterdir()
    )


@dataclass(frozen=True, slots=True)
class Trial:
    """A disturbance of a training, and its outcome.

    Attributes:
        deed: signal, rank, moment and step.
        result: the result of the training.
        seconds: from the signal to the restart, the built model and the next step; empty if none followed.
    """

    deed: tuple[str, str, str, str]
    result: dict[str, Any]
    seconds: tuple[float, ...]

    def __str__(self) -> str:
        cells = [f"{cell:<14}" for cell in self.deed]
        return "".join([*cells, *(f"{each:>10.1f}" for each in self.seconds)])


def disturbed(root: Path, number: int) -> Trial:
    """Train with one disturbance."""
    chance, moment = random.Random(number), MOMENTS[number % len(MOMENTS)]
    trainer = Trainer(root, "colours", BY_RANKS)
    progress = Progress(trainer)
    wait_for(moment, trainer, progress, chance, root)
    ranks = running_ranks(trainer)
    rank, kind = chance.randrange(2), chance.choice([signal.SIGKILL, signal.SIGSTOP])
    assert rank < len(ranks), "the training ended before it was disturbed"
    deed = (kind.name, f"rank {rank}", moment, f"step {progress.steps}")
    since = time.monotonic()
    ranks[rank].send_signal(kind)
    seconds = recovered(progress, since)
    times = (progress.restarted_at - since, progress.built_at - since, seconds or 0.0)
    progress.join()
    status, out, err = trainer.finish()
    assert status == 0, err
    return Trial(deed, json.loads(out.splitlines()[-1]), () if seconds is None else times)


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_each_training_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    data = tmp_path / "undisturbed"
    publish(data / "datasets", coloured(COUNTS), name="colours")
    expected = train(data, "colours", CONFIG)
    consumed = (Path(expected["run_dir"]) / "consumed.jsonl").read_bytes()
    assert len(consumed.splitlines()) == EPOCHS * STEPS_PER_EPOCH
    took: list[float] = []
    heads = "".join(f"{name:<14}" for name in ("signal", "to", "moment", "after"))
    print(f"\n{heads}{'restarted':>10}{'built':>10}{'next step':>10}")
    for number in range(TRIALS):
        root = tmp_path / f"trial-{number}"
        root.mkdir()
        (root / "datasets").symlink_to(data / "datasets")
        trial = disturbed(root, number)
        print(trial, flush=True)
        took += trial.seconds[-1:]
        assert (Path(trial.result["run_dir"]) / "consumed.jsonl").read_bytes() == consumed
        assert len(trial.result["restarts"]) == 1
        for row, wanted in zip(trial.result["history"], expected["history"], strict=True):
            assert row["train"]["loss"] == near(wanted["train"]["loss"], 1e-3)
    print(f"{TRIALS} trials; median {statistics.median(took):.1f} s, longest {max(took):.1f} s")
