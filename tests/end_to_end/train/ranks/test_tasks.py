"""Detectors and masks on several devices and ranks, and in mixed precision, learn what one device learns."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.samples.images.drawn_objects import draw_objects, objects_config
from tests.samples.images.masks import config as masks_config
from tests.samples.images.masks import make_masked
from tests.samples.preparing.prepared import run as prepare
from tests.samples.ranks.supervised import consumed_by, relative_distance
from tests.samples.training.steps import skip_unless_computable
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


@pytest.mark.parametrize("kind", MODELS)
def test_several_devices_equal_one(root: Path, tmp_path: Path, kind: str) -> None:
    expected = trained(root, kind, tmp_path / "one")
    for place, more in PLACES.items():
        result = trained(root, kind, tmp_path / place, more)
        assert consumed_by(result) == consumed_by(expected)
        # If two pixels are nearly equal, rounding decides which one max pooling passes on.
        assert relative_distance(result, expected) < 2e-4
        for split in ("validation", "test"):
            found, wanted = (one["metrics"][split] for one in (result, expected))
            assert found["loss"] == pytest.approx(wanted["loss"], rel=1e-2)
            assert found[FIGURE[kind]] == pytest.approx(wanted[FIGURE[kind]], abs=0.05)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("kind", MODELS)
def test_two_ranks_learn_in_mixed_precision(root: Path, tmp_path: Path, kind: str, precision: str) -> None:
    skip_unless_computable(precision)
    longer = {
        "run": {"mixed_precision": precision, "epochs": 6},
        "optimizer": {"name": "adamw", "learning_rate": 0.002},
    }
    result = trained(root, kind, tmp_path, longer, PLACES["ranks"])
    losses = [row["train"]["loss"] for row in result["history"]]
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < 0.8 * losses[0]
    assert 0 <= result["metrics"]["test"][FIGURE[kind]] <= 1
