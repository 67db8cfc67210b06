"""Fine-tuning in two stages of one run: the classifier alone, then everything."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import Cancelled, ConfigError
from shardmill.infra.settings import load_settings
from shardmill.training.config import TrainConfig
from tests.samples.datasets.published import coloured, publish
from tests.samples.training.sessions import StopAfter, last_state, trained

pytest.importorskip("tensorflow")

COUNTS = {"train": {"a": 12, "b": 8}, "validation": {"a": 3, "b": 2}}  # three steps an epoch
TWO_STAGES = [
    "model.name=tests.samples.models.two_layers", "model.warm_head_epochs=2", "run.epochs=4",
    "optimizer.head_learning_rate=0.05", "optimizer.learning_rate=0.01", "run.log_every_steps=1",
    "optimizer.first_layer_factor=0.5",
]  # fmt: skip


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> DatasetVersion:
    return publish(tmp_path_factory.mktemp("sets"), coloured(COUNTS, size=(8, 8)), name="set")


def changed(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> set[str]:
    """The weights that differ: without number and seeds."""
    names = {name for name, value in after.items() if not np.array_equal(before[name], value)}
    return {name[6:] for name in names if name.split(":")[1] in ("stem", "stem_bn", "logits")}


def interrupted(version: DatasetVersion, run_dir: Path, *steps: int) -> list[dict[str, np.ndarray]]:
    """The checkpoints of a run that is stopped after each of these steps, and of its end."""
    states = []
    for step in steps:
        with pytest.raises(Cancelled):
            trained(version, run_dir, *TWO_STAGES, stop=StopAfter(step))
        states.append(last_state(run_dir))
    trained(version, run_dir, *TWO_STAGES)
    return [*states, last_state(run_dir)]


def test_the_head_learns_first_and_an_interrupted_run_equals_an_unbroken_one(
    version: DatasetVersion, tmp_path: Path
) -> None:
    """Stopped in the middle of either stage, and between them."""
    trained(version, tmp_path / "unbroken", *TWO_STAGES)
    fourth, sixth, eighth, last = interrupted(version, tmp_path / "broken", 4, 6, 8)
    assert changed(fourth, sixth) == {"logits:kernel", "logits:bias"}
    assert changed(sixth, eighth) >= {"stem:kernel", "stem_bn:moving_mean", "logits:kernel"}
    unbroken = last_state(tmp_path / "unbroken")
    assert unbroken.keys() == last.keys()
    assert all(np.array_equal(last[name], unbroken[name]) for name in unbroken)


def test_each_stage_has_its_rate(version: DatasetVersion) -> None:
    from shardmill.training.tensorflow.optimization.optimizers import last_rate
    from shardmill.training.tensorflow.parts import build_parts
    from shardmill.training.tensorflow.ranks.strategy import make_strategy

    config = load_settings(
        TrainConfig,
        section="train",
        overrides=[*TWO_STAGES, "data.image_size=8", "optimizer.schedule=step", "optimizer.step_epochs=[1]",
                   "optimizer.warmup_steps=2"],
    )  # fmt: skip
    parts = build_parts(config, make_strategy("one"), version, 3)
    rates = [parts.stages.rate_at(step) for step in range(12)]
    assert rates == pytest.approx([0.05] * 6 + [0.005, 0.01, 0.01] + [0.001] * 3)
    assert parts.head is not None
    assert last_rate(parts.head.optimizer, parts.stages.rates) == pytest.approx(0.05)
    assert last_rate(parts.optimizer, parts.stages.rates) == pytest.approx(0.005)
    assert len(parts.model.trainable_variables) == 6, "the model is as it was"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.warm_head_epochs=4"], "leaves none of run.epochs = 4"),
        (["model.name=ResNet50"], "set model.weights"),
    ],
)
def test_stages_that_make_no_sense_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_settings(TrainConfig, section="train", overrides=[*TWO_STAGES, *overrides])
