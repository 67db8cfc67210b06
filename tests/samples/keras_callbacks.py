"""Callbacks of Keras, as a user writes them."""

from __future__ import annotations

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


def make() -> keras.callbacks.Callback:
    """The callback."""
    return Recorder()


def make_nothing() -> str:
    """No callback."""
    return "nothing"
