"""The settings ``[train.data]`` of the order as keyword arguments, for callers in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from shardmill.infra.settings import validate
from shardmill.training.config.data import DataSettings
from shardmill.training.order.from_settings import SplitLabels, order_from_settings
from shardmill.training.order.steps import Order, SequentialOrder


class OrderOptions(TypedDict, total=False):
    """Options with the names and meanings of the settings ``train.data`` (docs/configuration.md)."""

    balance: str
    balance_beta: float
    balance_threshold: float
    balance_weights: Mapping[str, float]
    class_weights: str | Mapping[str, float]
    granularity: Literal["record", "block"]
    block_records: int
    window_blocks: int


def order_options(options: Mapping[str, object]) -> dict[str, object]:
    """Return the options of the order among ``options``."""
    return {name: value for name, value in options.items() if name in OrderOptions.__annotations__}


def data_settings_from(
    batch_size: int, last_batch: Literal["pad", "drop", "partial"], seed: int, options: OrderOptions
) -> DataSettings:
    """Return the settings for the arguments of a caller.

    Args:
        batch_size: examples a step, over all ranks.
        last_batch: how a step that is not full is treated; for "partial" the caller cuts off the padding.
        seed: the seed of the run.
        options: the other options.

    Raises:
        ConfigError: an option is unknown or wrong.
    """
    asked = {
        "global_batch_size": batch_size,
        "last_batch": "drop" if last_batch == "drop" else "pad",
        "seed": seed,
        **options,
    }
    return validate(DataSettings, asked, where="the arguments")


def make_order(data: DataSettings, table: SplitLabels, classes: Sequence[str], *, training: bool) -> Order:
    """Return the training order, or for evaluation the stored order.

    Args:
        data: the settings.
        table: the labels and shards of the split.
        classes: the name of each label.
        training: return the training order.

    Raises:
        DataError: there are no records.
        ConfigError: a class is unknown.
    """
    if not training:
        return SequentialOrder(len(table), data.batch_size, data.last_batch)
    return order_from_settings(data, table, classes)
