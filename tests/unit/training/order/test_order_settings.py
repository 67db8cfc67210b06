"""From settings to an order: what each setting leads to, and what is refused when the classes are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shardmill.infra.errors import ConfigError
from shardmill.infra.settings import load_settings
from shardmill.training.config import TrainConfig
from shardmill.training.config.data import DataSettings
from shardmill.training.order import order_from_settings
from tests.samples.datasets.orders import epoch_of, table_of

CLASSES = ["ant", "bee", "cow"]
LABELS = np.repeat(np.arange(3, dtype=np.int32), [60, 30, 10])


def settings_of(*overrides: str) -> DataSettings:
    return load_settings(TrainConfig, section="train", overrides=overrides).data


@pytest.mark.parametrize(
    ("overrides", "draws"),
    [
        ([], [60, 30, 10]),
        (["data.balance=uniform"], [34, 33, 33]),
        (["data.balance=sqrt"], [47, 34, 19]),
        (["data.balance=effective-number", "data.balance_beta=0"], [60, 30, 10]),
        (["data.balance=effective-number"], [34, 33, 33]),
        (["data.balance=repeat-factor", "data.balance_threshold=0.4"], [52, 30, 18]),
        (["data.balance=weights", "data.balance_weights={ ant = 3, cow = 0 }"], [75, 25, 0]),
        (["data.balance=weights", "data.balance_weights.bee=2"], [25, 50, 25]),
    ],
)
def test_balance(overrides: list[str], draws: list[int]) -> None:
    order = order_from_settings(settings_of(*overrides), table_of(LABELS), CLASSES)
    assert np.bincount(LABELS[epoch_of(order, 0)], minlength=3).tolist() == draws


@pytest.mark.parametrize(
    ("overrides", "ratios"),
    [
        ([], None),
        (["data.class_weights=balanced"], [1, 2, 6]),
        (["data.class_weights=effective-number", "data.balance_beta=0"], [1, 1, 1]),
        (["data.class_weights={ bee = 5 }"], [1, 5, 1]),
        (["data.class_weights.bee=0.5", "data.class_weights.ant=4"], [4, 0.5, 1]),
        (["data.class_weights=balanced", "data.balance=uniform"], [1, 34 / 33, 34 / 33]),
        (["data.class_weights=balanced", "data.granularity=block"], [1, 2, 6]),
    ],
)
def test_class_weights(overrides: list[str], ratios: list[float] | None) -> None:
    order = order_from_settings(settings_of(*overrides), table_of(LABELS), CLASSES)
    if ratios is None:
        assert order.class_weights is None
    else:
        assert order.class_weights / order.class_weights[0] == pytest.approx(np.array(ratios) / ratios[0])


def test_granularity() -> None:
    settings = settings_of(
        "data.granularity=block", "data.block_records=5", "data.window_blocks=1", "data.global_batch_size=5"
    )
    order = order_from_settings(settings, table_of(LABELS, [50, 50]), CLASSES)
    for step in range(order.steps_per_epoch):
        records = np.sort(order.step(0, step).ordinals)
        assert records.tolist() == list(range(records[0], records[0] + 5))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["data.balance=weights", "data.balance_weights.cov=2"],
            r"balance_weights names 'cov'.*did you mean 'cow'",
        ),
        (["data.class_weights.Ant=2"], r"class_weights names 'Ant'.*did you mean 'ant'"),
        (["data.class_weights.zebra=2"], r"its classes: ant, bee, cow"),
        (
            ["data.balance=weights", "data.balance_weights={ ant=0, bee=0, cow=0 }"],
            "no class that has records",
        ),
    ],
)
def test_what_does_not_fit_the_dataset_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        order_from_settings(settings_of(*overrides), table_of(LABELS), CLASSES)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.balance=weights"], "without balance_weights"),
        (["data.balance_weights.cow=2"], "go with balance 'weights', not with 'natural'"),
        (["data.balance=weights", "data.balance_weights.cow=-1"], "greater than or equal to 0"),
        (["data.balance_beta=1"], "less than 1"),
        (["data.balance_threshold=0"], "greater than 0"),
        (["data.class_weights=balance"], "one of: none, balanced, effective-number"),
        (["data.class_weights.cow=0"], "the weight of 'cow' must be a number from"),
        (["data.class_weights.cow=nan"], "the weight of 'cow' must be a number from"),
        (["data.granularity=block", "data.balance=sqrt"], "use data.class_weights instead of data.balance"),
        (["data.block_records=0"], "greater than or equal to 1"),
    ],
)
def test_what_cannot_be_is_refused_at_once(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_of(*overrides)


def test_a_file_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        '[train.data]\nbalance = "weights"\nbalance_weights = { cow = 3 }\n'
        "[train.data.class_weights]\nbee = 2.0\n"
    )
    settings = load_settings(TrainConfig, section="train", config=path).data
    assert settings.balance_weights == {"cow": 3}
    assert settings.class_weights == {"bee": 2.0}
