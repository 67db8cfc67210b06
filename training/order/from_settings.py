"""Make an order from the settings ``[train.data]``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Protocol

import numpy as np
import numpy.typing as npt

from shardmill.infra.errors import ConfigError
from shardmill.infra.format.known_features import NO_CLASS
from shardmill.infra.near_names import near_names
from shardmill.training.arrays import Floats, Ints
from shardmill.training.config.data import DataSettings
from shardmill.training.order.balance import class_weights
from shardmill.training.order.balance.class_weights import WeightRule
from shardmill.training.order.balance.rules import (
    RULES,
    LabelSets,
    Rule,
    by_leading_label,
    by_weights,
    natural,
)
from shardmill.training.order.blocks import BlockSizes
from shardmill.training.order.epochs import TrainingOrder
from shardmill.training.order.mixtures import MixedOrder, parts_of_weights, seed_of_set, weights_of_sizes


class SplitLabels(Protocol):
    """The labels and shard sizes of a split, from which an order is made."""

    @property
    def label(self) -> npt.NDArray[np.int32]:
        """int32 [N]: the label of each record, by ordinal."""

    @property
    def shard_sizes(self) -> Ints:
        """int64 [S]: the number of records in each shard."""

    @property
    def label_sets(self) -> LabelSets | None:
        """Several labels of each record; None if the records have other labels."""

    @property
    def data_sets(self) -> Sequence[SplitLabels]:
        """The records of each of several data sets, which follow each other; empty: there is one."""

    def __len__(self) -> int:
        """Return the number of records, N."""


@dataclass(frozen=True, slots=True)
class LabelsOnly:
    """The labels of N records of one data set, as one shard (a ``SplitLabels``).

    Attributes:
        label: int32 [N].
        label_sets: several labels of each record; None if the records have other labels.
    """

    label: npt.NDArray[np.int32]
    label_sets: LabelSets | None = None

    @property
    def shard_sizes(self) -> Ints:
        """The number of records: int64 [1]."""
        return np.array([self.label.size], np.int64)

    @property
    def data_sets(self) -> tuple[()]:
        """Nothing: there is one data set."""
        return ()

    def __len__(self) -> int:
        return int(self.label.size)


def order_from_settings(
    data: DataSettings, table: SplitLabels, classes: Sequence[str]
) -> TrainingOrder | MixedOrder:
    """Return the order of a run with these settings.

    Args:
        data: the settings.
        table: the labels and shards of the split.
        classes: the name of each label.

    Raises:
        DataError: there are no records.
        ConfigError: a class is unknown, or the settings do not fit the data.
    """
    if data.left_out_fold is not None:
        raise ConfigError(
            "data.left_out_fold is for training runs alone",
            "take data.folds and data.left_out_fold out of the settings",
        )
    if data.is_mixture:
        return _mixed_order(data, table, classes)
    return _order_of_one(data, table, classes, data.seed, weight_rule(data, classes))


def _mixed_order(data: DataSettings, table: SplitLabels, classes: Sequence[str]) -> MixedOrder:
    """Return the order in which several data sets are dealt by their shares.

    Raises:
        ConfigError: the settings do not fit the number of data sets, or one has no record of the split.
    """
    sets, weights = table.data_sets, data.mixture_weights
    check_shares(data, len(sets))
    empty = [str(number) for number, one in enumerate(sets, 1) if not len(one)]
    if empty:
        raise ConfigError(
            f"data set {' and '.join(empty)} of {len(sets)} has no records to train on",
            "leave it out, or prepare it with a train split",
        )
    if data.mixture_temperature is not None:
        weights = weights_of_sizes([len(one) for one in sets], data.mixture_temperature)
    orders = [
        _order_of_one(data, one, classes, seed_of_set(data.seed, number), None)
        for number, one in enumerate(sets)
    ]
    rule = weight_rule(data, classes)
    return MixedOrder(
        orders,
        parts_of_weights(weights),
        seed=data.seed,
        end=data.mixture_end,
        class_weights=rule,
        labels=None if rule is None else table.label,
    )


def check_shares(data: DataSettings, num_data_sets: int) -> None:
    """Check that the settings about shares of data sets fit their number.

    Raises:
        ConfigError: they do not.
    """
    if data.is_mixture and num_data_sets < 2:
        raise ConfigError(
            "shares of data sets are set (data.mixture_weights or data.mixture_temperature), and there is "
            "one data set",
            "name several data sets, or leave the setting out",
        )
    if data.mixture_weights and len(data.mixture_weights) != num_data_sets:
        raise ConfigError(
            f"data.mixture_weights has {len(data.mixture_weights)} numbers for {num_data_sets} data sets",
            "give one for each data set, in their order",
        )


def _order_of_one(
    data: DataSettings,
    table: SplitLabels,
    classes: Sequence[str],
    seed: int,
    class_weights: WeightRule | None,
) -> TrainingOrder:
    """Return the order over all records of a table, as those of one data set."""
    if len(table) and table.label.min() == NO_CLASS:
        labels, balance = _without_single_classes(data, table)
    else:
        labels, balance = table.label, balance_rule(data, classes)
    blocks = BlockSizes(data.block_records, data.window_blocks) if data.granularity == "block" else None
    return TrainingOrder(
        labels,
        seed=seed,
        global_batch_size=data.batch_size,
        balance=balance,
        last_batch="pad" if data.is_mixture else data.last_batch,  # a mixture has whole steps alone
        blocks=blocks,
        shard_sizes=table.shard_sizes,
        class_weights=class_weights,
    )


def _without_single_classes(data: DataSettings, table: SplitLabels) -> tuple[npt.NDArray[np.int32], Rule]:
    """Return a class for each record to balance by, and the rule, for labels other than one class each.

    Raises:
        ConfigError: the settings ask for one class each.
    """
    sets = table.label_sets
    repeats = data.balance == "repeat-factor" and sets is not None
    why = "needs one class an image; this dataset has other labels, or none"
    if data.balance != "natural" and not repeats:
        raise ConfigError(
            f"data.balance = {data.balance!r} {why}",
            "leave it out: data.balance = 'natural'"
            + (", or choose 'repeat-factor', which draws several labels too" if sets is not None else ""),
        )
    if data.class_weights != "none":
        raise ConfigError(
            f"data.class_weights = {data.class_weights!r} {why}", "leave it out: data.class_weights = 'none'"
        )
    if repeats and sets is not None:
        return by_leading_label(sets, data.balance_threshold)
    return np.zeros_like(table.label), natural


def balance_rule(data: DataSettings, classes: Sequence[str]) -> Rule:
    """Return the rule of ``data.balance`` with its parameters: ``beta`` is ``data.balance_beta``, and so on.

    Raises:
        ConfigError: ``data.balance_weights`` names an unknown class.
    """
    if data.balance == "weights":
        return partial(by_weights, weights=_by_label("data.balance_weights", data.balance_weights, classes))
    rule = RULES[data.balance]
    _, *parameters = signature(rule).parameters
    return partial(rule, **{name: getattr(data, f"balance_{name}") for name in parameters})


def weight_rule(data: DataSettings, classes: Sequence[str]) -> WeightRule | None:
    """Return the rule of ``data.class_weights``; None if all examples have the same weight.

    Raises:
        ConfigError: it names an unknown class.
    """
    if isinstance(data.class_weights, Mapping):
        return partial(
            class_weights.given, weights=_by_label("data.class_weights", data.class_weights, classes)
        )
    if data.class_weights == "none":
        return None
    if data.class_weights == "effective-number":
        return partial(class_weights.effective_number, beta=data.balance_beta)
    return class_weights.WEIGHT_RULES[data.class_weights]


def _by_label(key: str, weights: Mapping[str, float], classes: Sequence[str]) -> Floats:
    """Return the weight of each label: float64 [C]; 1 for a class that is not named."""
    unknown = sorted(weights.keys() - set(classes))
    if unknown:
        near = near_names(unknown[0], classes)
        shown = ", ".join([*classes[:20], "..."] if len(classes) > 20 else classes)
        raise ConfigError(
            f"{key} names {unknown[0]!r}, which is no class of the dataset",
            f"did you mean {near[0]!r}?" if near else f"its classes: {shown}",
        )
    return np.array([weights.get(name, 1.0) for name in classes])
