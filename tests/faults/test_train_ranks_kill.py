"""Ranks of a supervised training killed or stopped at random moments: in steps, while saving, while starting.

The training finishes by itself, with exactly the planned records and the loss of an undisturbed run.
"""

from __future__ import annotations

import json
import random
import signal
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from tests.samples.datasets.published import coloured, publish
from tests.samples.ranks.supervised import Progress, recovered, running_ranks
from tests.samples.training.rounding import near
from tests.samples.training.trainer import Trainer, settings, train

COUNTS = {"train": {"a": 60, "b": 31, "c": 14}, "validation": {"a": 6, "b": 4, "c": 2}}
EPOCHS, STEPS_PER_EPOCH = 40, 14
CONFIG = settings(
    model={"name": "tests.samples.models.linear_model"},
    data={"balance": "uniform"},
    run={
        "epochs": EPOCHS,
        "validate_every_epochs": 10,
        "log_every_steps": 1,
        "checkpoint_every_steps": 4,
        "trace_records": True,
        "deterministic": True,
    },
)
BY_RANKS = {**CONFIG, "ranks": {"workers": "2", "max_restarts": 9}}


def disturb(trainer: Trainer, progress: Progress, chance: random.Random) -> str | None:
    """Kill or stop a random rank at a random moment; what was done, or None if the training ended before."""
    while len(ranks := running_ranks(trainer)) < 2:
        if progress.is_over:
            return None
        time.sleep(0.05)
    while_starting = chance.random() < 0.25
    if while_starting:
        time.sleep(chance.uniform(0.0, 8.0))
    else:
        until = progress.steps + chance.randint(2, 12)
        while progress.steps < until and not progress.is_over:
            time.sleep(0.01)
    ranks = running_ranks(trainer)
    if progress.is_over or not ranks:
        return None
    number, rank = chance.choice([signal.SIGKILL, signal.SIGSTOP]), chance.randrange(len(ranks))
    ranks[rank].send_signal(number)
    return f"{number.name} to rank {rank}{' while starting' if while_starting else ''}"


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ten_disturbances_of_ranks_change_nothing(tmp_path: Path, seed: int) -> None:
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    for root in (undisturbed, disturbed):
        publish(root / "datasets", coloured(COUNTS), name="colours")
    expected = train(undisturbed, "colours", CONFIG)

    chance = random.Random(seed)
    trainer = Trainer(disturbed, "colours", BY_RANKS)
    progress = Progress(trainer)
    seconds: list[float] = []
    deeds = []
    for _ in range(10):
        deed = disturb(trainer, progress, chance)
        if deed is None:
            break
        since = time.monotonic()
        took = recovered(progress, since)
        deeds.append(deed)
        if took is not None:
            seconds.append(took)
        print(f"{deed} at step {progress.steps}: next step after {took and round(took, 1)} s", flush=True)
    progress.join()
    status, out, err = trainer.finish()
    assert status == 0, err
    result: dict[str, Any] = json.loads(out.splitlines()[-1])

    assert len(deeds) >= 5, "the training ended before it was disturbed"
    assert len(result["restarts"]) == len(deeds)
    consumed = [Path(one["run_dir"]) / "consumed.jsonl" for one in (expected, result)]
    assert consumed[1].read_bytes() == consumed[0].read_bytes()
    assert len(consumed[0].read_text().splitlines()) == EPOCHS * STEPS_PER_EPOCH
    for row, wanted in zip(result["history"], expected["history"], strict=True):
        assert row["train"]["loss"] == near(wanted["train"]["loss"], 1e-3)
    print(f"{len(deeds)} disturbances; median {statistics.median(seconds):.1f} s to the next step")
