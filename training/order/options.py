"""The order that a caller in Python asks for: the settings ``[train.data]`` as keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

from infra.settings import validate
from training.config.data import DataSettings
from training.order.chosen import chosen_order
from training.order.steps import Order, SequentialOrder

if TYPE_CHECKING:
    from training.reading.table import SplitTable


class OrderOptions(TypedDict, total=False):
    """As the settings of the same names (docs/configuration.md, ``train.data``)."""

    balance: str
    balance_beta: float
    balance_threshold: float
    balance_weights: Mapping[str, float]
    class_weights: str | Mapping[str, float]
    granularity: Literal["record", "block"]
    block_records: int
    window_blocks: int


def asked_data(
    batch_size: int, last_batch: Literal["pad", "drop", "partial"], seed: int, options: OrderOptions
) -> DataSettings:
    """The settings that the arguments make.

    Args:
        batch_size: examples a step, over all ranks.
        last_batch: of a step that is not full; "partial" is for the caller to cut off what pads.
        seed: names the order.
        options: what else is asked for.

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


def asked_order(data: DataSettings, table: SplitTable, classes: Sequence[str], *, training: bool) -> Order:
    """The training order that is asked for; for evaluation, stored order.

    Args:
        data: what is asked for.
        table: of the split.
        classes: name of each label.
        training: which of the two.

    Raises:
        DataError: there are no records. ConfigError: a class is unknown.
    """
    if not training:
        return SequentialOrder(len(table), data.global_batch_size, data.last_batch)
    return chosen_order(data, table, classes)
