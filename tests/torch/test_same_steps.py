"""PyTorch gives the records, pixels, labels and weights of every other reader, step by step.

The number of ranks changes on the way. ``tests/unit/training/reading/test_every_reader.py`` compares the
others in further orders.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from pathlib import Path

from tests.samples.datasets.published import measured, publish
from tests.samples.training.steps_by_reader import Wanted, steps_of

ROOT = Path(__file__).parents[2]
OTHERS = ["tf", "batches", "jax", "grain"]


def test_each_step_is_that_of_every_other_reader(root: Path, tmp_path: Path, tensorflow_python: str) -> None:
    common = {"batch_size": 10, "image_size": 16, "seed": 9, "last_batch": "pad"}
    wanted = [
        Wanted(str(root), "set@1", 6, common | {"balance": balance}, ranks=(1, 2, 3), bounds=(2, 7, 12))
        for balance in ("natural", "uniform", "sqrt")
    ]
    # Of other depths and channels too.
    publish(tmp_path, measured("uint16", 5, {"train": {"a": 31, "b": 22}}), name="deep", shards_per_split=3)
    options = common | {"augment": {"vertical_flip": True, "quarter_turns": True, "erasing.probability": 0.5}}
    wanted.append(Wanted(str(tmp_path), "deep", 6, options, ranks=(1, 2, 3), bounds=(2, 7, 12)))
    mixed = [f"deep?label == {name!r}" for name in "ab"]
    shares = {"weights": [0.5, 0.5], "end": 6}
    wanted.append(Wanted(str(tmp_path), mixed, 6, options, shares, ranks=(1, 2, 3), bounds=(2, 7, 12)))
    questions = json.dumps([{**asdict(one), "readers": OTHERS} for one in wanted])
    argv = [tensorflow_python, "-m", "tests.samples.training.steps_by_reader", questions]
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=300, check=True)
    for one, found in zip(wanted, json.loads(done.stdout), strict=True):
        mine = steps_of("torch", one)
        assert len(mine) == 12
        for reader in OTHERS:
            assert found[reader] == mine, (one.options, reader)
