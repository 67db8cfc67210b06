"""The operations of tasks with PyTorch."""

# ruff: noqa: D102  ``Operations`` describes each method

from __future__ import annotations

from typing import Any, Final

import torch
from torch.nn import functional

from shardmill.training.tasks.task import Operations


class TorchOperations(Operations):
    """Operations on tensors of PyTorch; ``Operations`` describes each."""

    def class_losses(self, logits: Any, labels: Any, smoothing: float = 0.0) -> Any:
        flat = functional.cross_entropy(
            logits.flatten(0, -2), labels.flatten(), reduction="none", label_smoothing=smoothing
        )
        return flat.unflatten(0, labels.shape)

    def label_losses(self, logits: Any, targets: Any) -> Any:
        return functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")

    def softmax(self, logits: Any) -> Any:
        return logits.softmax(dim=-1)

    def sigmoid(self, logits: Any) -> Any:
        return logits.sigmoid()

    def argmax(self, values: Any) -> Any:
        return values.argmax(dim=-1)

    def mean(self, values: Any) -> Any:
        return values.mean(dim=-1)

    def sum_of_pixels(self, values: Any) -> Any:
        return values.sum(dim=(-2, -1))

    def all(self, values: Any) -> Any:
        return values.all(dim=-1)

    def is_nan(self, values: Any) -> Any:
        return values.isnan()

    def where(self, condition: Any, values: Any, others: Any) -> Any:
        return torch.where(condition, values, others)

    def cast(self, values: Any, dtype: str) -> Any:
        return values.to(getattr(torch, dtype))

    def constant(self, values: tuple[float, ...], like: Any) -> Any:
        return torch.tensor(values, dtype=like.dtype, device=like.device)


OPERATIONS: Final = TorchOperations()
