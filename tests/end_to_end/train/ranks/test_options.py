"""Options of training by two ranks give what they give on one device, and ranks stop together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.samples.datasets.published import coloured, publish
from tests.samples.ranks.supervised import assert_same_training
from tests.samples.training.steps import skip_unless_computable
from tests.samples.training.trainer import settings, train

COUNTS = {"train": {"a": 20, "b": 12}, "validation": {"a": 6, "b": 5}}
CONFIG = settings(
    optimizer={"name": "sgd", "learning_rate": 0.05},
    model={"name": "tests.samples.models.linear_model", "dropout": 0.0},
    run={"epochs": 3, "trace_records": True, "deterministic": True},
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset."""
    root = tmp_path_factory.mktemp("options")
    publish(root / "datasets", coloured(COUNTS), name="colours")
    return root


def by_two(config: dict[str, Any]) -> dict[str, Any]:
    """The same by two ranks, of which the first takes most rows."""
    return {**config, "ranks": {"workers": "2", "shares": [3, 1]}}


def with_options(**groups: dict[str, Any]) -> dict[str, Any]:
    """CONFIG with more options."""
    return {name: {**CONFIG.get(name, {}), **groups.get(name, {})} for name in {*CONFIG, *groups}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "rel"),
    [
        (with_options(run={"accumulate_steps": 2}, optimizer={"clip_norm": 0.5}), 1e-4),
        (with_options(optimizer={"ema_decay": 0.9}, model={"name": "small_cnn"}), 1e-4),
        # Sums in another order differ by the precision of float16.
        (with_options(run={"mixed_precision": "float16"}), 1e-2),
    ],
    ids=["accumulation", "averages", "float16"],
)
def test_two_ranks_equal_one_device(root: Path, tmp_path: Path, config: dict[str, Any], rel: float) -> None:
    skip_unless_computable(config["run"].get("mixed_precision", "off"))
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "datasets").symlink_to(root / "datasets")
    expected = train(tmp_path / "one", "colours", config)
    assert_same_training(train(tmp_path / "two", "colours", by_two(config)), expected, rel)


@pytest.mark.slow
def test_ranks_stop_together_when_a_callback_of_one_asks_for_it(root: Path) -> None:
    config = with_options(run={"callbacks": ["tests.samples.training.keras_callbacks:make_stop_on_rank_one"]})
    result = train(root, "colours", by_two(config))
    assert result["epochs"] == 1
    assert result["stopped_early"] == "a callback of run.callbacks set model.stop_training"
