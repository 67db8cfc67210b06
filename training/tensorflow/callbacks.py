"""Attach the callbacks of Keras that a configuration names (``run.callbacks``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import keras

from shardmill.infra.errors import ConfigError
from shardmill.infra.near_names import near_miss
from shardmill.training.config import own_callback
from shardmill.training.metrics.figures import is_smaller_better
from shardmill.training.ranks.peers import Peers
from shardmill.training.run.framework import Callbacks
from shardmill.training.tensorflow.optimization.update import FREE_RATE
from shardmill.training.tensorflow.parts import TrainingParts

# Callbacks that look at a figure.
_LOOKING = (
    keras.callbacks.EarlyStopping,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.ReduceLROnPlateau,
)
# Callbacks that set the learning rate.
_SET_RATE = (keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau)
# Callbacks that work only in ``Model.fit`` -> what does the same in a run.
_OF_FIT = {
    keras.callbacks.BackupAndRestore: "leave it out: a run continues from its own checkpoints",
    keras.callbacks.SwapEMAWeights: "set optimizer.ema_decay in its place",
}


class AttachedCallbacks(Callbacks):
    """The callbacks of a run. They see its model with its optimizer, and may set ``model.stop_training``.

    The logs of ``on_train_batch_end`` are the figures of the last report, since fetching them from the device
    after each step would slow down training. A resumed run begins with ``on_train_begin`` again, and in the
    middle of an epoch with ``on_epoch_begin``.
    """

    def __init__(
        self,
        names: Sequence[str],
        parts: TrainingParts,
        epochs: int,
        steps_per_epoch: int,
        figures: Collection[str],
        ranks: Peers,
    ) -> None:
        """Make the callbacks.

        Args:
            names: ``run.callbacks``.
            parts: the model of the run with all that trains it.
            epochs: the epochs of the run.
            steps_per_epoch: the steps of an epoch.
            figures: the names of the figures of an epoch.
            ranks: the ranks, which all take the learning rate that the callbacks of the first one have set.

        Raises:
            ConfigError: a name leads to no callback, or to one that cannot work.
        """
        self._model, self._strategy = parts.model, parts.strategy
        self._model.stop_training = False
        self._num = len(names)
        self._ranks = ranks
        callbacks = [_made(name) for name in names]
        self.use(parts.optimizer)
        for name, callback in zip(names, callbacks, strict=True):
            _check(name, callback, parts.optimizer, figures)
        self._list = keras.callbacks.CallbackList(
            callbacks,
            add_history=False,
            add_progbar=False,
            model=self._model,
            epochs=epochs,
            verbose=0,
            steps=steps_per_epoch,
        )

    def use(self, optimizer: Any) -> None:
        """Let ``model.optimizer`` be the one of the next steps."""
        if self._num:
            self._model.optimizer = optimizer

    def _agree_on_rate(self) -> None:
        """Let all ranks take the learning rate that the callbacks of the first one have set."""
        if not self._num or self._ranks.num_ranks == 1:
            return
        rate = self._model.optimizer.learning_rate
        if isinstance(rate, keras.Variable):
            of_first = self._ranks.value_of_first(float(rate.numpy()))
            with self._strategy.scope():
                self._model.optimizer.learning_rate = of_first

    @property
    def stop_asked(self) -> bool:  # type: ignore[override]
        """Whether a callback has set ``model.stop_training``."""
        return bool(self._model.stop_training)

    def train_begins(self) -> None:
        """Training begins, or goes on after an interruption."""
        self._call("on_train_begin")

    def train_ends(self) -> None:
        """Training has reached its end."""
        self._call("on_train_end")

    def epoch_begins(self, epoch: int, *, is_resumed: bool) -> None:
        """Epoch ``epoch`` (from 0) begins, or goes on: then the learning rate stays as it was."""
        rate = self._model.optimizer.learning_rate if self._num else None
        before = float(rate.numpy()) if is_resumed and isinstance(rate, keras.Variable) else None
        self._call("on_epoch_begin", epoch)
        if before is not None:
            with self._strategy.scope():
                self._model.optimizer.learning_rate = before
        self._agree_on_rate()

    def epoch_ends(self, epoch: int, row: Mapping[str, Any]) -> None:
        """Epoch ``epoch`` has ended with the figures of ``row``; those of validation get the prefix val_."""
        validation = {f"val_{name}": value for name, value in row.get("validation", {}).items()}
        self._call("on_epoch_end", epoch, {**row["train"], **validation})
        self._agree_on_rate()

    def step_begins(self, step: int) -> None:
        """Step ``step`` of the epoch begins."""
        self._call("on_train_batch_begin", step)

    def step_ends(self, step: int, figures: Mapping[str, float]) -> None:
        """Step ``step`` of the epoch has been started on the device."""
        self._call("on_train_batch_end", step, dict(figures))

    def _call(self, what: str, *arguments: Any) -> None:
        if self._num:
            with self._strategy.scope():  # they may assign variables
                getattr(self._list, what)(*arguments)


def _check(name: str, callback: Any, optimizer: Any, figures: Collection[str]) -> None:
    """Check that a callback can work, and tell one of Keras whether its figure rises or falls.

    Raises:
        ConfigError: it cannot.
    """
    kind = type(callback).__name__
    for of_fit, remedy in _OF_FIT.items():
        if isinstance(callback, of_fit):
            raise ConfigError(f"run.callbacks: {name!r} is a {kind}, which works in Model.fit only", remedy)
    if isinstance(callback, _SET_RATE) and not isinstance(optimizer.learning_rate, keras.Variable):
        raise ConfigError(
            f"run.callbacks: {name!r} is a {kind}, which sets the learning rate, as optimizer.schedule does",
            FREE_RATE,
        )
    if isinstance(callback, keras.callbacks.ModelCheckpoint) and not callback.save_best_only:
        return
    if isinstance(callback, _LOOKING) and callback.monitor != "learning_rate":
        if callback.monitor not in figures:
            raise ConfigError(
                f"run.callbacks: {name!r} is a {kind} for {callback.monitor!r}, which this run does not have",
                near_miss(callback.monitor, sorted(figures)),
            )
        if callback.mode == "auto":  # Keras knows the direction of the metrics that it has compiled
            is_smaller = is_smaller_better(callback.monitor.removeprefix("val_"))
            callback.mode = "min" if is_smaller else "max"


def _made(name: str) -> Any:
    callback = own_callback(name).load_function()()
    if not isinstance(callback, keras.callbacks.Callback):
        raise ConfigError(f"run.callbacks: {name!r} returned {callback!r}, not a keras.callbacks.Callback")
    return callback
