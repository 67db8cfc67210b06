"""Moving averages of the weights, as ``shardmill.training.tensorflow.optimization`` has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from shardmill.training.torch.state import TensorState


class WeightAverages:
    """The averages of all floating-point weights and statistics of a model.

    After n updates the decay is min(decay, (1 + n) / (10 + n)): the random weights of the beginning are soon
    forgotten.

    Attributes:
        saved: the averages and the number of updates, for checkpoints.
        evaluated: an array for each of ``model_state(model)``, in their order: its average, or itself where
            it is no floating-point number.
    """

    def __init__(self, states: list[TensorState], decay: float) -> None:
        """Begin with the values that ``states`` of the model have."""
        self._decay = decay
        self._pairs: list[tuple[Any, Any]] = []
        self.evaluated: list[TensorState] = []
        averages: list[TensorState] = []
        for state in states:
            if not state.tensor.is_floating_point():
                self.evaluated.append(state)
                continue
            average = state.tensor.detach().clone()
            self._pairs.append((average, state.tensor))
            averages.append(TensorState(state.path, average))
            self.evaluated.append(averages[-1])
        self._num_updates = torch.zeros((), dtype=torch.int64)
        self.saved: list[TensorState] = [*averages, TensorState("num_updates", self._num_updates)]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def update(self) -> None:
        """Move the averages towards the weights, after each step."""
        done = int(self._num_updates)
        share = 1.0 - min(self._decay, (1.0 + done) / (10.0 + done))
        for average, tensor in self._pairs:
            average.lerp_(tensor, share)
        self._num_updates += 1

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """Let the model have the averages while the block runs."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _exchange(self) -> None:
        for average, tensor in self._pairs:
            value = tensor.clone()
            tensor.copy_(average)
            average.copy_(value)
