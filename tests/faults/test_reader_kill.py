"""``kill -9`` of all ranks that read through TensorFlow, and on with other ranks: 2, 1, 3, 2, ...

What the ranks were given over all processes together is exactly the sequence of an unbroken run.
"""

from __future__ import annotations

import itertools
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from shardmill import open_dataset
from shardmill.training.config import AugmentSettings
from shardmill.training.order import TrainingOrder
from shardmill.training.order.balance.rules import RULES
from shardmill.training.reading import BatchMaker
from tests.faults.reader_process import BATCH_SIZE, SEED, read
from tests.samples.datasets.published import coloured, publish
from tests.samples.ranks.killed_rank import Rank

READER = "tests.faults.reader_process"
EPOCHS = 3
NUM_RANKS = (2, 1, 3)
COUNTS = {"train": {"a": 30, "b": 16, "c": 7}}
STEPS = 14  # of 53 records


def read_till(count: int | None, num_ranks: int, told: dict[str, Any]) -> list[tuple[dict[str, Any], ...]]:
    """The steps that all ranks were given: a line of each rank.

    Args:
        count: all are killed once each has as many; None: they read to the end, here.
    """
    if count is None:
        return list(
            zip(
                *(read({**told, "rank": rank, "num_ranks": num_ranks}) for rank in range(num_ranks)),
                strict=True,
            )
        )
    ranks = [Rank(READER, rank=rank, num_ranks=num_ranks, **told) for rank in range(num_ranks)]
    for rank in ranks:
        rank.read(count)
    for rank in ranks:
        rank.process.send_signal(signal.SIGKILL)
    assert [rank.finish() for rank in ranks] == [-signal.SIGKILL] * num_ranks
    # Whatever a rank was given beyond the slowest one's last step is as good as never read.
    return list(zip(*(rank.lines for rank in ranks), strict=False))


@pytest.mark.parametrize(
    ("balance", "num_kills", "steps_between"),
    [
        ("natural", 1, (8, 13)),
        pytest.param("natural", 10, (1, 3), marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
        pytest.param("uniform", 10, (1, 3), marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
    ],
)
def test_killed_readers_go_on_exactly(
    tmp_path: Path, balance: str, num_kills: int, steps_between: tuple[int, int]
) -> None:
    publish(tmp_path, coloured(COUNTS), name="set", shards_per_split=3)
    chance = random.Random(num_kills)
    told = {"root": str(tmp_path), "epochs": EPOCHS, "balance": balance, "seconds_a_step": 0.2}
    given: list[tuple[list[str], int]] = []
    for process, num_ranks in zip(range(num_kills + 1), itertools.cycle(NUM_RANKS), strict=False):
        count = chance.randint(*steps_between) if process < num_kills else None
        for lines in read_till(count, num_ranks, {**told, "start": len(given)}):
            assert {line["step"] for line in lines} == {len(given)}
            ids = [name for line in lines for name in line["ids"]]
            given.append((ids, sum(line["pixels"] for line in lines)))
    assert given == unbroken(tmp_path, balance)


def unbroken(root: Path, balance: str) -> list[tuple[list[str], int]]:
    """Ids and the sum of all pixels of each step, made in this process without TensorFlow."""
    reader = open_dataset("set@1", root=root).reader("train")
    order = TrainingOrder(reader.table.label, seed=SEED, global_batch_size=BATCH_SIZE, balance=RULES[balance])
    assert order.steps_per_epoch == STEPS
    maker = BatchMaker(reader, image_size=16, augment=AugmentSettings(), threads=1)
    plans = [order.step(*divmod(step, STEPS)) for step in range(EPOCHS * STEPS)]
    return [
        (reader.table.ids(plan.ordinals[: plan.num_real]), int(maker.make(plan).images.sum()))
        for plan in plans
    ]
