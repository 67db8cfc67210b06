"""Callbacks of Keras, as a user writes them."""

from __future__ import annotations

import json
import os
from typing import Any

import keras

SEEN: list[tuple[str, int, list[str]]] = []


class Recorder(keras.callbacks.Callback):
    """Notes what it is called with, and stops after the second epoch."""

    def on_train_begin(self, logs: Any = None) -> None:
        SEEN.append(("train begins", self.params["epochs"], []))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        SEEN.append(("step", batch, sorted(logs)))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        SEEN.append(("epoch", epoch, sorted(logs)))
        self.model.stop_training = epoch == 1

    def on_train_end(self, logs: Any = None) -> None:
        SEEN.append(("train ends", 0, []))


class StopsOnRankOne(keras.callbacks.Callback):
    """Stops after the first epoch, but only rank 1 says so."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        task = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task", {})
        self.model.stop_training = task.get("index") == 1


class Fails(keras.callbacks.Callback):
    """Raises an error after the first epoch."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        raise KeyError("no_such_figure")


def make_failing() -> keras.callbacks.Callback:
    """Return a callback that fails."""
    return Fails()


RATES: list[tuple[str, float]] = []


class NotesRates(keras.callbacks.Callback):
    """Notes the learning rate that each step takes, by the optimizer."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        RATES.append(("step", float(self.model.optimizer.learning_rate.numpy())))


def make_notes() -> keras.callbacks.Callback:
    """Return a callback that notes rates."""
    return NotesRates()


def make_halving() -> keras.callbacks.Callback:
    """Return a callback that halves the learning rate at the beginning of each epoch but the first."""
    return keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2 if epoch else rate)


def make_plateau() -> keras.callbacks.Callback:
    """Return a callback that reduces the learning rate after each epoch: nothing improves by so much."""
    return keras.callbacks.ReduceLROnPlateau(monitor="val_accuracy", factor=0.1, patience=1, min_delta=9.0)


def make_early_stopping() -> keras.callbacks.Callback:
    """Return a callback that stops after the second epoch, since nothing improves by so much."""
    return keras.callbacks.EarlyStopping("val_accuracy", min_delta=9.0, patience=1, restore_best_weights=True)


def make_mistyped() -> keras.callbacks.Callback:
    """Return a callback for a figure that there is not."""
    return keras.callbacks.EarlyStopping("val_acuracy")


def make_backup() -> keras.callbacks.Callback:
    """Return a callback that works in Model.fit only."""
    return keras.callbacks.BackupAndRestore("backup")


def make_swap() -> keras.callbacks.Callback:
    """Return a callback that needs averages of the optimizer."""
    return keras.callbacks.SwapEMAWeights()


class SetsRate(keras.callbacks.Callback):
    """Sets the learning rate in the second epoch."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 1:
            self.model.optimizer.learning_rate = 0.25


def make_sets_rate() -> keras.callbacks.Callback:
    """Return a callback of one's own that sets the learning rate."""
    return SetsRate()


def make_stop_on_rank_one() -> keras.callbacks.Callback:
    """Return a callback that asks only rank 1 to stop."""
    return StopsOnRankOne()


def make() -> keras.callbacks.Callback:
    """The callback."""
    return Recorder()


def make_nothing() -> str:
    """No callback."""
    return "nothing"
