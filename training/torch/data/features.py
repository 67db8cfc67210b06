"""Features of examples and of batches as tensors; bytes and texts stay Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from shardmill.training.reading.records.columns import Padded


def torch_features(features: Mapping[str, Any]) -> dict[str, Any]:
    """Return the features of a batch.

    Args:
        features: as ``FeatureColumns.rows`` returns them.

    Returns:
        Tensors [b] or [b, length]; ``Padded`` tensors for lists of any length; lists for bytes and texts.
    """
    return {name: _of_batch(values) for name, values in features.items()}


def features_of_examples(features: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Return the features of each example of a batch: a value, a tensor or a list; lists without padding.

    Args:
        features: as ``FeatureColumns.rows`` returns them.
        count: number of examples.
    """
    columns = {name: _examples(values) for name, values in features.items()}
    return [{name: column[row] for name, column in columns.items()} for row in range(count)]


def joined_features(examples: Sequence[Mapping[str, Any]], variable: frozenset[str]) -> dict[str, Any]:
    """Return the features of examples as those of a batch, as ``torch_features`` has them.

    Args:
        examples: as ``features_of_examples`` returns them.
        variable: names of the features that are lists of any length.
    """
    joined: dict[str, Any] = {}
    for name in examples[0]:
        values = [example[name] for example in examples]
        if name in variable and isinstance(values[0], torch.Tensor):
            lengths = torch.tensor([len(one) for one in values])
            missing = float("nan") if values[0].is_floating_point() else -(1 << 63)
            padded = torch.nn.utils.rnn.pad_sequence(values, batch_first=True, padding_value=missing)
            joined[name] = Padded(padded, lengths)
        elif isinstance(values[0], torch.Tensor):
            joined[name] = torch.stack(values)
        else:
            joined[name] = values
    return joined


def _of_batch(values: Any) -> Any:
    if isinstance(values, Padded):
        if values.values.dtype == object:
            return _examples(values)
        return Padded(torch.tensor(values.values), torch.tensor(values.lengths))
    return values.tolist() if values.dtype == object else torch.tensor(values)


def _examples(values: Any) -> list[Any]:
    if isinstance(values, Padded):
        rows = [row[:length] for row, length in zip(values.values, values.lengths.tolist(), strict=True)]
        return [row.tolist() if row.dtype == object else torch.tensor(row) for row in rows]
    return values.tolist() if values.dtype == object else list(torch.tensor(values))
