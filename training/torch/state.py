"""The state of a training as arrays, as ``shardmill.training.run.checkpoints`` saves variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

_SCALE_KEYS = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")


class TensorState:
    """A tensor that is changed in place.

    Attributes:
        path: its name in a checkpoint.
        tensor: the tensor.
    """

    def __init__(self, path: str, tensor: Any) -> None:
        self.path = path
        self.tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return tuple(self.tensor.shape)

    def numpy(self) -> npt.NDArray[Any]:
        """Return a copy of the values."""
        return np.array(self.tensor.detach().cpu().numpy())

    def assign(self, array: npt.NDArray[Any]) -> None:
        """Replace the values."""
        with torch.no_grad():
            self.tensor.copy_(torch.from_numpy(np.array(array)))


class ScaleState(TensorState):
    """The scale of the loss in float16, with the steps since it last grew."""

    def __init__(self, scaler: Any) -> None:
        super().__init__("loss_scale", torch.empty(len(_SCALE_KEYS)))
        self._scaler = scaler

    def numpy(self) -> npt.NDArray[Any]:
        """Return the values of the scaler's state."""
        state = self._scaler.state_dict()
        return np.array([state[key] for key in _SCALE_KEYS], np.float64)

    def assign(self, array: npt.NDArray[Any]) -> None:
        """Replace them."""
        values = dict(zip(_SCALE_KEYS, array.tolist(), strict=True))
        values |= {key: int(values[key]) for key in ("growth_interval", "_growth_tracker")}
        self._scaler.load_state_dict(values)


def model_state(model: Any) -> list[TensorState]:
    """Return all arrays that decide what a model does, each once: its state dictionary."""
    found: dict[int, TensorState] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), TensorState(name, tensor))
    return list(found.values())


def optimizer_state(optimizer: Any, name: str = "optimizer") -> list[TensorState]:
    """Return the arrays of an optimizer's state, which ``prepare_state`` has made.

    Args:
        optimizer: the optimizer.
        name: what their names begin with.
    """
    found = []
    number = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for part, value in optimizer.state[parameter].items():
                if isinstance(value, torch.Tensor):
                    found.append(TensorState(f"{name}.{number}.{part}", value))
            number += 1
    return found
