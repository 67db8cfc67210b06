"""``kill -9`` of all ranks that read, with batches under way in their workers, and again with other ranks.

What the ranks were given over all processes together is exactly the sequence of an unbroken run.
"""

from __future__ import annotations

import itertools
import random
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from shardmill import Dataset
from shardmill.training.order import TrainingOrder
from shardmill.training.order.balance.rules import RULES
from tests.samples.ranks.killed_rank import Rank
from tests.torch.reader_process import BATCH_SIZE, SEED

READER = "tests.torch.reader_process"
EPOCHS = 3
STEPS = 14  # of 53 records
NUM_RANKS = (2, 3, 1)
NUM_KILLS = 10


def read_till(
    count: int | None, state: Any, num_ranks: int, told: dict[str, Any]
) -> list[list[dict[str, Any]]]:
    """The steps that all ranks were given, step by step the lines of all ranks.

    Args:
        count: all are killed when the first rank has as many; None: they read to the end.
    """
    ranks = [Rank(READER, rank=rank, num_ranks=num_ranks, state=state, **told) for rank in range(num_ranks)]
    if count is not None:
        ranks[0].read(count)
        for rank in ranks:
            rank.process.send_signal(signal.SIGKILL)
    wanted = 0 if count is None else -signal.SIGKILL
    assert [rank.finish() for rank in ranks] == [wanted] * num_ranks
    return [list(lines) for lines in zip(*(rank.lines for rank in ranks), strict=False)]


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_workers_that_start_end_with_their_killed_loader(root: Path, context: str) -> None:
    told = {"root": str(root), "epochs": 1, "balance": "natural", "num_workers": 1, "seconds_a_step": 0}
    rank = Rank(READER, rank=0, num_ranks=1, state=None, context=context, **told)
    reader = psutil.Process(rank.process.pid)
    needed = 2 if context == "spawn" else 3  # one tracks semaphores, another may be the fork server
    while len(started := reader.children(recursive=True)) < needed:
        time.sleep(0.05)
    time.sleep(0.5)  # the worker has its orders by now, and still imports PyTorch
    rank.process.send_signal(signal.SIGKILL)
    assert rank.finish() == -signal.SIGKILL
    assert rank.lines == []
    _, alive = psutil.wait_procs(started, timeout=60)
    for process in alive:
        process.kill()
    assert alive == []


@pytest.mark.parametrize("balance", ["natural", pytest.param("uniform", marks=pytest.mark.slow)])
def test_killed_readers_go_on_exactly(dataset: Dataset, root: Path, balance: str) -> None:
    chance = random.Random(7)
    told = {"root": str(root), "epochs": EPOCHS, "balance": balance, "num_workers": 1, "seconds_a_step": 0.1}
    given: list[tuple[int, int, list[str]]] = []
    state = None
    for number, num_ranks in zip(range(NUM_KILLS + 1), itertools.cycle(NUM_RANKS), strict=False):
        left = EPOCHS * STEPS - len(given)
        count = min(chance.randint(1, 4), left - 1) if number < NUM_KILLS else None
        for lines in read_till(count, state, num_ranks, told):
            # Whatever a rank was given beyond the slowest one's last step is as good as never read.
            assert all(line["state"] == lines[0]["state"] for line in lines)
            ids = [name for line in lines for name in line["ids"]]
            given.append((lines[0]["epoch"], lines[0]["step"], ids))
            state = lines[0]["state"]
    table = dataset.table("train")
    order = TrainingOrder(table.label, seed=SEED, global_batch_size=BATCH_SIZE, balance=RULES[balance])
    assert order.steps_per_epoch == STEPS
    plans = [order.step(epoch, step) for epoch in range(EPOCHS) for step in range(STEPS)]
    assert given == [(plan.epoch, plan.step, table.ids(plan.ordinals)) for plan in plans]
