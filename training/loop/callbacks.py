"""Attach the callbacks of Keras that a configuration names (``run.callbacks``)."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from infra.errors import ConfigError


class AttachedCallbacks:
    """The callbacks of a run. They see its model, and may set ``model.stop_training``.

    The logs of ``on_train_batch_end`` are the figures of the last report, since fetching them from the device
    after each step would slow down training. The model is not compiled, so callbacks that change
    ``model.optimizer`` do not work. A resumed run begins with ``on_train_begin`` again.
    """

    def __init__(self, names: Sequence[str], model: Any, epochs: int, steps_per_epoch: int) -> None:
        """Make the callbacks.

        Raises:
            ConfigError: a name leads to no callback.
        """
        self._model = model
        model.stop_training = False
        callbacks = [_made(name) for name in names]
        self._list = keras.callbacks.CallbackList(
            callbacks, add_history=False, add_progbar=False, model=model, epochs=epochs, steps=steps_per_epoch
        )

    @property
    def stop_asked(self) -> bool:
        """Whether a callback has set ``model.stop_training``."""
        return bool(self._model.stop_training)

    def train_begins(self) -> None:
        """Training begins, or goes on after an interruption."""
        self._list.on_train_begin()

    def train_ends(self) -> None:
        """Training has reached its end."""
        self._list.on_train_end()

    def epoch_begins(self, epoch: int) -> None:
        """Epoch ``epoch`` (from 0) begins."""
        self._list.on_epoch_begin(epoch)

    def epoch_ends(self, epoch: int, row: Mapping[str, Any]) -> None:
        """Epoch ``epoch`` has ended with the figures of ``row``; those of validation get the prefix val_."""
        validation = {f"val_{name}": value for name, value in row.get("validation", {}).items()}
        self._list.on_epoch_end(epoch, {**row["train"], **validation})

    def step_begins(self, step: int) -> None:
        """Step ``step`` of the epoch begins."""
        self._list.on_train_batch_begin(step)

    def step_ends(self, step: int, figures: Mapping[str, float]) -> None:
        """Step ``step`` of the epoch has been started on the device."""
        self._list.on_train_batch_end(step, dict(figures))


def _made(name: str) -> Any:
    module, separator, factory = name.partition(":")
    if not separator or not module or not factory:
        raise ConfigError(
            f"run.callbacks: {name!r} is not 'module:factory'", "as in my_package.callbacks:make"
        )
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and lacks one of its own
        raise ConfigError(
            f"run.callbacks: {name!r} cannot be imported: {error}", "put its folder on PYTHONPATH"
        ) from error
    if not callable(getattr(found, factory, None)):
        raise ConfigError(f"run.callbacks: {name!r} cannot be imported: there is no function {factory!r}")
    callback = getattr(found, factory)()
    if not isinstance(callback, keras.callbacks.Callback):
        raise ConfigError(f"run.callbacks: {name!r} returned {callback!r}, not a keras.callbacks.Callback")
    return callback
