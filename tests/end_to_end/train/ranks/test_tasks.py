"""Detectors and masks on several devices and ranks, and in mixed precision, learn what one device learns."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.samples.images.drawn_objects import draw_objects, objects_config
from tests.samples.images.masks import config as masks_config
from tests.samples.images.masks import make_masked
from tests.samples.preparing.prepared import run as prepare
from tests.samples.ranks.supervised import weights_of
from tests.samples.training.trainer import settings, train

pytestmark = pytest.mark.slow

OBJECTS = {"train": 24, "validation": 9, "test": 5}
LEARNING = {
    "data": {"image_size": 64, "global_batch_size": 8},
    "optimizer": {"name": "sgd", "learning_rate": 0.01, "clip_norm": 1.0},
    "run": {"epochs": 1, "trace_records": True, "deterministic": True},
}
MODELS = {"objects": "compact_resnet", "masks": "small_unet"}
FIGURE = {"objects": "average_precision", "masks": "mean_iou"}
PLACES: dict[str, dict[str, Any]] = {
    "replicas": {"run": {"devices": "cpu:2"}},
    "ranks": {"ranks": {"workers": "2", "shares": [3, 1]}},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset for each kind of labels."""
    root = tmp_path_factory.mktemp("tasks")
    shapes = draw_objects(root / "shapes", OBJECTS, seed=3)
    prepare(shapes, root / "objects", **objects_config(OBJECTS))
    prepare(make_masked(root / "masked", 40), root / "masks", **masks_config(image={"size": 64}))
    return root


def trained(root: Path, kind: str, place: Path, *more: dict[str, Any]) -> dict[str, Any]:
    """The result of a training in a folder of its own."""
    place.mkdir(exist_ok=True)
    (place / "datasets").symlink_to(root / kind)
    groups: dict[str, dict[str, Any]] = {"model": {"name": MODELS[kind], "dropout": 0.0}}
    for part in (LEARNING, *more):
        for name, values in part.items():
            groups[name] = {**groups.get(name, {}), **values}
    return train(place, "d", settings(**groups))


def trace_of(result: dict[str, Any]) -> bytes:
    return (Path(result["run_dir"]) / "consumed.jsonl").read_bytes()


def difference(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> float:
    """The L2 norm of the difference of all variables, as a fraction of the norm of the expected ones."""
    assert found.keys() == expected.keys()
    norms = [np.linalg.norm((found[name] - expected[name]).ravel()) for name in expected]
    return float(
        np.linalg.norm(norms) / np.linalg.norm([np.linalg.norm(one.ravel()) for one in expected.values()])
    )


@pytest.mark.parametrize("kind", MODELS)
def test_several_devices_equal_one(root: Path, tmp_path: Path, kind: str) -> None:
    expected = trained(root, kind, tmp_path / "one")
    for place, more in PLACES.items():
        result = trained(root, kind, tmp_path / place, more)
        assert trace_of(result) == trace_of(expected)
        # If two pixels are nearly equal, rounding decides which one max pooling passes on.
        assert difference(weights_of(result), weights_of(expected)) < 2e-4
        for split in ("validation", "test"):
            found, wanted = (one["metrics"][split] for one in (result, expected))
            assert found["loss"] == pytest.approx(wanted["loss"], rel=1e-2)
            assert found[FIGURE[kind]] == pytest.approx(wanted[FIGURE[kind]], abs=0.05)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("kind", MODELS)
def test_two_ranks_learn_in_mixed_precision(root: Path, tmp_path: Path, kind: str, precision: str) -> None:
    longer = {
        "run": {"mixed_precision": precision, "epochs": 6},
        "optimizer": {"name": "adamw", "learning_rate": 0.002},
    }
    result = trained(root, kind, tmp_path, longer, PLACES["ranks"])
    losses = [row["train"]["loss"] for row in result["history"]]
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < 0.8 * losses[0]
    assert 0 <= result["metrics"]["test"][FIGURE[kind]] <= 1
