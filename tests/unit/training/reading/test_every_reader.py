"""Every reader gives the same pixels, labels and weights at the same step, however many ranks read it.

``tests/torch/test_same_steps.py`` compares PyTorch with these, and ``tests/unit/training/grain`` the worker
processes of Grain.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import pytest

from tests.samples.datasets.published import coloured, measured, publish, publish_patterned
from tests.samples.training.steps_by_reader import Wanted, steps_of

OTHERS = ["jax", "grain"]
AUGMENT = {
    "vertical_flip": True,
    "quarter_turns": True,
    "erasing.probability": 0.5,
    "color_jitter.brightness": 0.3,
}
ASKED: dict[str, dict[str, Any]] = {
    "classes": {"balance": "uniform", "class_weights": "balanced", "augment": AUGMENT},
    "blocks": {"granularity": "block", "last_batch": "pad", "image_size": 10},  # decoded scaled
    "several": {"last_batch": "pad", "augment": False, "image_size": 10, "decoding": "whole"},
    "uint16": {"last_batch": "pad", "augment": AUGMENT},
    "float32": {"last_batch": "pad", "augment": AUGMENT},
    "mixture": {"balance": "uniform", "class_weights": "balanced", "augment": AUGMENT},
}
# Three steps are an epoch: 26 positions have 11 draws at 0.4.
MIXTURE = {"weights": [0.4, 0.6], "classes": {"z": "a"}}


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Wanted]:
    root = tmp_path_factory.mktemp("datasets")
    counts = {"train": {"a": 21, "b": 13, "c": 5}}
    publish(root, coloured(counts, size=(40, 52)), name="classes", shards_per_split=3)
    publish_patterned(root, {"train": 38}, several=True, name="several")
    for dtype, channels in (("uint16", 5), ("float32", 2)):
        publish(root, measured(dtype, channels, counts), name=dtype, shards_per_split=3)
    # Of another container and encoding.
    others = coloured({"train": {"d": 9, "z": 2}}, size=(30, 44))
    publish(root, others, name="others", shards_per_split=1, container="none", encoding="png")
    names: dict[str, str | list[str]] = {"blocks": "classes", "mixture": ["others", "classes?label != 'c'"]}
    common = {"batch_size": 12, "image_size": 24, "seed": 7}
    return {
        name: Wanted(
            str(root),
            names.get(name, name),
            4 if options.get("last_batch") == "pad" else 3,
            common | options,
            MIXTURE if name == "mixture" else {},
        )
        for name, options in ASKED.items()
    }


@pytest.fixture(scope="module")
def of_others(wanted: dict[str, Wanted]) -> dict[str, dict[str, Any]]:
    questions = json.dumps([{**asdict(one), "readers": OTHERS} for one in wanted.values()])
    done = subprocess.run(
        [sys.executable, "-m", "tests.samples.training.steps_by_reader", questions],
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    return dict(zip(wanted, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", ASKED)
def test_the_steps_are_the_same(
    name: str, wanted: dict[str, Wanted], of_others: dict[str, dict[str, Any]]
) -> None:
    expected = steps_of("tf", wanted[name])
    assert len({pixels for pixels, _, _ in expected}) == 8
    found = {"batches": steps_of("batches", wanted[name]), **of_others[name]}
    for reader in ("batches", *OTHERS):
        assert found[reader] == expected, reader
