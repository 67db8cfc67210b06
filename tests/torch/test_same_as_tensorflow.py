"""The records of each step are those of the TensorFlow pipeline, however many ranks and workers read them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from shardmill import Dataset

ROOT = Path(__file__).parents[2]
EPOCHS = 2


@pytest.mark.parametrize("balance", ["natural", "uniform", "sqrt"])
def test_each_step_holds_the_records_of_tensorflow(
    dataset: Dataset, root: Path, tensorflow_python: str, balance: str
) -> None:
    told = {"root": str(root), "seed": 9, "global_batch_size": 10, "balance": balance, "epochs": EPOCHS}
    argv = [tensorflow_python, "-m", "tests.torch.tensorflow_steps", json.dumps(told)]
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=300, check=True)
    wanted = json.loads(done.stdout)
    assert len(wanted) == EPOCHS * 6

    def loader(rank: int, num_ranks: int) -> Any:
        return dataset.torch(
            "train",
            batch_size=10,
            image_size=16,
            seed=9,
            balance=balance,
            last_batch="pad",
            rank=rank,
            num_ranks=num_ranks,
            num_workers=1,
            num_epochs=EPOCHS,
        )

    table = dataset.table("train")
    for num_ranks in (1, 3):
        loaders = [loader(rank, num_ranks) for rank in range(num_ranks)]
        found = []
        for _ in range(EPOCHS):
            for parts in zip(*loaders, strict=True):
                ids = table.ids(torch.cat([part.ordinals for part in parts]).numpy())
                labels = torch.cat([part.labels for part in parts]).tolist()
                found.append([ids, labels, torch.cat([part.weights for part in parts]).tolist()])
        assert found == wanted
