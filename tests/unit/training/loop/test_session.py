"""Whole runs in this process: the best model, early stopping, callbacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infra.dataset.catalog import DatasetVersion
from infra.errors import ConfigError
from tests.samples.published import coloured, publish
from tests.samples.sessions import trained
from training.loop.evaluating.best import is_better, looks_since_best

pytest.importorskip("tensorflow")

COUNTS = {"train": {"a": 12, "b": 8}, "validation": {"a": 3, "b": 2}}


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> DatasetVersion:
    return publish(tmp_path_factory.mktemp("sets"), coloured(COUNTS, size=(8, 8)), name="set")


@pytest.mark.parametrize(
    ("metric", "figures", "best", "better"),
    [
        ("accuracy", {"accuracy": 0.5, "loss": 2.0}, None, True),
        ("accuracy", {"accuracy": 0.6, "loss": 2.0}, {"accuracy": 0.5, "loss": 1.0}, True),
        ("accuracy", {"accuracy": 0.5, "loss": 0.9}, {"accuracy": 0.5, "loss": 1.0}, True),
        ("accuracy", {"accuracy": 0.5, "loss": 1.0}, {"accuracy": 0.5, "loss": 1.0}, False),
        ("macro_f1", {"macro_f1": 0.4, "loss": 0.1}, {"macro_f1": 0.5, "loss": 1.0}, False),
        ("loss", {"accuracy": 0.1, "loss": 0.9}, {"accuracy": 0.5, "loss": 1.0}, True),
        ("loss", {"accuracy": 0.9, "loss": 1.1}, {"accuracy": 0.5, "loss": 1.0}, False),
    ],
)
def test_the_better_epoch(metric: str, figures: Any, best: Any, better: bool) -> None:
    assert is_better(figures, best, metric) is better


def test_only_looks_at_validation_count() -> None:
    history = [{"epoch": 1, "validation": {}}, {"epoch": 2}, {"epoch": 3, "validation": {}}]
    assert looks_since_best(history, {"epoch": 1}) == 1
    assert looks_since_best(history, None) == 0


def test_a_run_that_does_not_improve_stops_early(version: DatasetVersion, tmp_path: Path) -> None:
    """At such a rate the loss is best after the first epoch or so, and gets worse from then on."""
    settings = ["run.best_metric=loss", "run.patience=2", "run.epochs=40", "optimizer.name=sgd"]
    settings += ["optimizer.learning_rate=1e-12", "optimizer.weight_decay=0", "optimizer.schedule=constant"]
    loop, found = trained(version, tmp_path, *settings)
    losses = [row["validation"]["loss"] for row in loop.progress.history]
    assert loop.progress.epoch == len(losses) == int(np.argmin(losses)) + 1 + 2 < 40
    assert loop.progress.best["epoch"] == int(np.argmin(losses)) + 1
    assert found.loss == pytest.approx(min(losses), rel=1e-5)
    assert "run.patience = 2" in loop.stopped_early


def test_callbacks_are_called_and_may_stop_the_run(version: DatasetVersion, tmp_path: Path) -> None:
    from tests.samples import keras_callbacks

    keras_callbacks.SEEN.clear()
    callbacks = "run.callbacks=['tests.samples.keras_callbacks:make']"
    loop, found = trained(version, tmp_path, callbacks, "run.epochs=9", "optimizer.ema_decay=0.99")
    assert [what for what, _, _ in keras_callbacks.SEEN] == (
        ["train begins", *["step"] * 3, "epoch", *["step"] * 3, "epoch", "train ends"]
    )
    assert keras_callbacks.SEEN[0][1] == 9
    assert keras_callbacks.SEEN[1] == ("step", 0, ["accuracy", "loss"])
    assert {"accuracy", "loss", "val_accuracy", "val_loss"} < set(keras_callbacks.SEEN[4][2])
    assert (loop.progress.epoch, loop.run_step) == (2, 6)
    assert "stop_training" in loop.stopped_early
    best = loop.progress.history[int(loop.progress.best["epoch"]) - 1]["validation"]
    assert found.figures() == pytest.approx(best), "the averages were evaluated, kept and restored"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tests.samples.keras_callbacks", "is not 'module:factory'"),
        ("tests.samples.keras_callbacks:mak", "cannot be imported"),
        ("tests.samples.keras_callbacks:make_nothing", "returned 'nothing', not a keras.callbacks.Callback"),
    ],
)
def test_names_that_lead_to_no_callback_are_refused(name: str, message: str) -> None:
    import keras

    from training.loop.callbacks import AttachedCallbacks

    with pytest.raises(ConfigError) as caught:
        AttachedCallbacks([name], keras.Sequential(), 1, 1)
    assert message in str(caught.value)
