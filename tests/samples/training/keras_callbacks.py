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


def make_stop_on_rank_one() -> keras.callbacks.Callback:
    """Return a callback that asks only rank 1 to stop."""
    return StopsOnRankOne()


def make() -> keras.callbacks.Callback:
    """The callback."""
    return Recorder()


def make_nothing() -> str:
    """No callback."""
    return "nothing"
