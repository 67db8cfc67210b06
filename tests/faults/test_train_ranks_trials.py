"""Trials: in each training a random rank is killed or stopped once, in a step, during a save or at start.

``make test-ranks TRIALS=30`` prints a row for each, with the time from the signal to the next step. Every
training finishes by itself, with exactly the planned records and the loss of an undisturbed run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from infra.storage.local import TEMPORARY_PREFIX
from tests.samples.published import coloured, publish
from tests.samples.ranks import Progress, recovered, running_ranks
from tests.samples.trainer import Trainer, settings, train

TRIALS = int(os.environ.get("TRIALS", "3"))
COUNTS = {"train": {"a": 60, "b": 31, "c": 14}, "validation": {"a": 6, "b": 4, "c": 2}}
EPOCHS, STEPS_PER_EPOCH = 20, 14
CONFIG = settings(
    model={"name": "tests.samples.linear_model"},
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


def disturbed(root: Path, number: int) -> tuple[dict[str, Any], list[str], float | None]:
    """Train with one disturbance: the result, what was done, and the seconds to the next step."""
    chance, moment = random.Random(number), MOMENTS[number % len(MOMENTS)]
    trainer = Trainer(root, "colours", BY_RANKS)
    progress = Progress(trainer)
    wait_for(moment, trainer, progress, chance, root)
    ranks = running_ranks(trainer)
    rank, kind = chance.randrange(2), chance.choice([signal.SIGKILL, signal.SIGSTOP])
    assert rank < len(ranks), "the training ended before it was disturbed"
    at_step = progress.steps
    ranks[rank].send_signal(kind)
    seconds = recovered(progress, time.monotonic())
    progress.join()
    status, out, err = trainer.finish()
    assert status == 0, err
    return json.loads(out.splitlines()[-1]), [kind.name, f"rank {rank}", moment, f"step {at_step}"], seconds


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_each_training_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    data = tmp_path / "undisturbed"
    publish(data / "datasets", coloured(COUNTS), name="colours")
    expected = train(data, "colours", CONFIG)
    consumed = (Path(expected["run_dir"]) / "consumed.jsonl").read_bytes()
    assert len(consumed.splitlines()) == EPOCHS * STEPS_PER_EPOCH
    took: list[float] = []
    print(f"\n{'trial':<6} {'signal':<8} {'to':<7} {'moment':<14} {'after':<9} seconds to the next step")
    for number in range(TRIALS):
        root = tmp_path / f"trial-{number}"
        root.mkdir()
        (root / "datasets").symlink_to(data / "datasets")
        result, deed, seconds = disturbed(root, number)
        took += [] if seconds is None else [seconds]
        name, rank, moment, step = deed
        shown = "none followed" if seconds is None else f"{seconds:.1f}"
        print(f"{number:<6} {name:<8} {rank:<7} {moment:<14} {step:<9} {shown}", flush=True)
        assert (Path(result["run_dir"]) / "consumed.jsonl").read_bytes() == consumed
        assert len(result["restarts"]) == 1
        for row, wanted in zip(result["history"], expected["history"], strict=True):
            assert row["train"]["loss"] == pytest.approx(wanted["train"]["loss"], rel=1e-3)
    print(f"{TRIALS} trials; median {statistics.median(took):.1f} s, longest {max(took):.1f} s")
