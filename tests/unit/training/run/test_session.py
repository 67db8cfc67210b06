"""Whole runs in this process: the best model, early stopping, callbacks."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from shardmill import Dataset
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import Cancelled, ConfigError, Diverged
from shardmill.infra.progress import subscribe
from shardmill.training.config import DataSettings
from shardmill.training.run.epochs.run_progress import is_better, looks_since_best
from shardmill.training.run.files.folds import divide_train_split
from shardmill.training.run.stopping import StopFlag
from tests.samples.datasets.published import coloured, publish
from tests.samples.strict_json import strict, strict_documents
from tests.samples.training.sessions import StopAfter, last_state, trained

pytest.importorskip("tensorflow")

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of Keras

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
        ("absolute_error", {"absolute_error": 0.4, "loss": 2.0}, {"absolute_error": 0.5, "loss": 1.0}, True),
        ("absolute_error", {"absolute_error": 0.5, "loss": 1.1}, {"absolute_error": 0.5, "loss": 1.0}, False),
        ("r2", {"r2": 0.4, "loss": 0.1}, {"r2": 0.5, "loss": 1.0}, False),
        ("loss", {"accuracy": 0.1, "loss": 0.9}, {"accuracy": 0.5, "loss": 1.0}, True),
        ("loss", {"accuracy": 0.9, "loss": 1.1}, {"accuracy": 0.5, "loss": 1.0}, False),
        ("loss", {"loss": 9.0}, {"loss": math.nan}, True),
        ("loss", {"loss": math.nan}, {"loss": 9.0}, False),
        ("loss", {"loss": math.inf}, {"loss": 9.0}, False),
        ("loss", {"loss": math.nan}, {"loss": math.nan}, False),
        ("accuracy", {"accuracy": 0.5, "loss": 2.0}, {"accuracy": 0.5, "loss": math.nan}, True),
        ("accuracy", {"accuracy": 0.5, "loss": 2.0}, {"accuracy": 0.9, "loss": math.nan}, True),
        ("accuracy", {"accuracy": 0.9, "loss": math.nan}, {"accuracy": 0.5, "loss": 2.0}, False),
        ("accuracy", {"accuracy": 0.9, "loss": math.nan}, None, False),
        ("r2", {"r2": -3.0, "loss": 2.0}, {"r2": math.nan, "loss": 1.0}, True),
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


NAN_GRADIENT = ["model.name=tests.samples.models.nan_gradient_model", "run.epochs=4"]


def assert_finite(state: Mapping[str, Any]) -> None:
    """Assert that all arrays of a checkpoint are finite."""
    assert state
    assert all(np.isfinite(array).all() for array in state.values())


def test_a_gradient_that_is_not_a_number_ends_the_run_before_it_is_kept(
    version: DatasetVersion, tmp_path: Path
) -> None:
    """The loss of the step is finite, and it is the last of its epoch: its model would be validated."""
    for _ in range(2):  # the same command again meets the same step
        with pytest.raises(
            Diverged, match="gradient became nan, while the loss was finite, at step 3, epoch 2"
        ):
            trained(version, tmp_path, *NAN_GRADIENT)
        files = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
        assert files == ["best-000001.npz", "step-000000003.npz"]
        assert_finite(last_state(tmp_path))
    (row,) = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert row["epoch"] == 1


def test_weights_that_are_not_finite_are_neither_validated_nor_kept(
    version: DatasetVersion, tmp_path: Path
) -> None:
    settings = ["model.name=tests.samples.models.infinite_statistics_model", "run.epochs=2"]
    with pytest.raises(Diverged, match=r"diverged by step 3 of the run: .*moving_variance") as caught:
        trained(version, tmp_path, *settings)
    assert caught.value.exit_code == 2
    assert "optimizer.learning_rate" in str(caught.value.remedy)
    assert list(tmp_path.rglob("*.npz")) == []
    assert not (tmp_path / "metrics.jsonl").exists()


def test_an_epoch_whose_figures_are_not_finite_is_never_the_best(
    version: DatasetVersion, tmp_path: Path
) -> None:
    """Its accuracy is that of the first class, a finite number."""
    settings = ["model.name=tests.samples.models.nan_outputs_model", "run.epochs=2"]
    with pytest.raises(Diverged, match="no epoch of the run has a finite loss and accuracy"):
        trained(version, tmp_path, *settings, "run.patience=1")
    rows = [strict(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["validation_loss"], row["validation_accuracy"]) for row in rows] == [(None, 0.6)] * 2
    assert strict_documents(tmp_path)[".npz"] == 2
    with np.load(tmp_path / "checkpoints" / "step-000000006.npz") as archive:
        assert strict(bytes(archive["progress"]))["best"] is None


def test_callbacks_are_called_and_may_stop_the_run(version: DatasetVersion, tmp_path: Path) -> None:
    from tests.samples.training import keras_callbacks

    keras_callbacks.SEEN.clear()
    callbacks = "run.callbacks=['tests.samples.training.keras_callbacks:make']"
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


FREE_RATE = ["optimizer.schedule=constant", "optimizer.warmup_fraction=0", "optimizer.learning_rate=0.5",
             "optimizer.name=sgd", "run.epochs=3"]  # fmt: skip
MINE = "tests.samples.training.keras_callbacks"


def rates_of(version: DatasetVersion, run_dir: Path, *settings: str, stop: StopFlag | None = None) -> Any:
    """The rates that the optimizer took, the rates that were logged, by step, and the loop."""
    from tests.samples.training import keras_callbacks

    said: list[Any] = []
    keras_callbacks.RATES.clear()
    end = subscribe(said.append)
    try:
        loop, _ = trained(version, run_dir, *settings, "run.log_every_steps=1", stop=stop)
    except Cancelled:
        loop = None
    finally:
        end()
    logged = {event["step"]: event["learning_rate"] for event in said
              if event["event"] == "metrics" and event["split"] == "train"}  # fmt: skip
    return [rate for _, rate in keras_callbacks.RATES], logged, loop


@pytest.mark.parametrize(
    ("factory", "rates"),
    [
        ("make_halving", [0.5] * 3 + [0.25] * 3 + [0.125] * 3),
        ("make_plateau", [0.5] * 6 + [0.05] * 3),
        ("make_sets_rate", [0.5] * 3 + [0.25] * 6),
    ],
)
def test_callbacks_set_the_learning_rate_and_the_logged_one_is_the_optimizers(
    version: DatasetVersion, tmp_path: Path, factory: str, rates: list[float]
) -> None:
    asked = f"run.callbacks=['{MINE}:{factory}','{MINE}:make_notes']"
    taken, logged, _ = rates_of(version, tmp_path, asked, *FREE_RATE)
    assert taken == pytest.approx(rates)
    assert list(logged.values()) == pytest.approx(rates)


def test_a_run_that_is_resumed_in_an_epoch_keeps_the_rate_that_callbacks_set(
    version: DatasetVersion, tmp_path: Path
) -> None:
    asked = f"run.callbacks=['{MINE}:make_halving','{MINE}:make_notes']"
    before, *_ = rates_of(version, tmp_path, asked, *FREE_RATE, stop=StopAfter(5))
    after, *_ = rates_of(version, tmp_path, asked, *FREE_RATE)
    assert before + after == pytest.approx([0.5] * 3 + [0.25] * 3 + [0.125] * 3)


def test_the_logged_rate_of_a_schedule_is_that_of_the_step(version: DatasetVersion, tmp_path: Path) -> None:
    settings = ["optimizer.schedule=cosine", "optimizer.warmup_steps=3", "run.epochs=2"]
    _, logged, loop = rates_of(version, tmp_path, *settings)
    steps = np.arange(6)
    falling = 0.002 * (1 + np.cos(np.pi * (steps - 3) / 3)) / 2
    assert list(logged.values()) == pytest.approx(
        np.where(steps < 3, 0.002 * (steps + 1) / 3, falling), rel=1e-6
    )
    assert loop.run_step == 6


def test_early_stopping_of_keras_knows_the_direction_of_a_figure(
    version: DatasetVersion, tmp_path: Path
) -> None:
    loop, _ = trained(version, tmp_path, f"run.callbacks=['{MINE}:make_early_stopping']", "run.epochs=9")
    assert loop.progress.epoch == 2
    assert "stop_training" in loop.stopped_early


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("make_halving", r"'.*:make_halving' is a LearningRateScheduler, which sets the learning rate"),
        ("make_plateau", r"is a ReduceLROnPlateau, which sets the learning rate, as optimizer.schedule"),
        ("make_mistyped", r"EarlyStopping for 'val_acuracy', which .*\(did you mean 'val_accuracy'\?"),
        ("make_backup", r"is a BackupAndRestore, which works in Model.fit only"),
        ("make_swap", r"is a SwapEMAWeights, .*optimizer.ema_decay"),
    ],
)
def test_callbacks_that_cannot_work_are_refused_before_the_first_step(
    version: DatasetVersion, tmp_path: Path, factory: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        trained(version, tmp_path, f"run.callbacks=['{MINE}:{factory}']", "run.epochs=2")
    assert not (tmp_path / "checkpoints").exists()


def test_a_callback_that_sets_the_rate_of_a_schedule_is_told_the_settings(
    version: DatasetVersion, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"sets the learning rate .*optimizer.schedule = 'constant'"):
        trained(version, tmp_path, f"run.callbacks=['{MINE}:make_sets_rate']", "run.epochs=2")


def test_a_run_learns_from_all_folds_but_one(version: DatasetVersion, tmp_path: Path) -> None:
    trained(
        version, tmp_path, "data.folds=4", "data.left_out_fold=3", "run.epochs=2", "run.trace_records=true"
    )
    steps = [json.loads(line) for line in (tmp_path / "consumed.jsonl").read_text().splitlines()]
    seen = [name for step in steps for name in step["ids"]]
    reader = Dataset(version).reader("train")
    asked = DataSettings(folds=4, left_out_fold=3)
    left_out = divide_train_split(asked, reader, ["a", "b"]).left_out
    assert left_out is not None
    ids = set(reader.table.ids(np.arange(20))) - set(reader.table.ids(left_out))
    assert len(ids) == 15
    assert sorted(seen) == sorted([*ids, *ids])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"folds": 3}, "go together"),
        ({"folds": 3, "left_out_fold": 4}, "left_out_fold = 4 of 3 folds"),
        ({"folds": 3, "left_out_fold": 1, "granularity": "block"}, "set data.granularity = 'record'"),
    ],
)
def test_folds_that_cannot_be_left_out_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataSettings.model_validate(settings)


def test_an_empty_fold_is_refused(version: DatasetVersion) -> None:
    asked, reader = DataSettings(folds=30, left_out_fold=30), Dataset(version).reader("train")
    with pytest.raises(ConfigError, match="fold 30 of 30 has no records"):
        divide_train_split(asked, reader, ["a", "b"])


def test_tensorboard_gets_pictures_and_a_profile(version: DatasetVersion, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trained(version, tmp_path, "run.epochs=2", "run.profile_steps=[2,3]", "augment.mixup=0.2")
    (profile,) = (tmp_path / "logs" / "plugins" / "profile").glob("*/*.xplane.pb")
    assert profile.stat().st_size > 0
    for split, name in (("train", "examples"), ("validation", "hardest")):
        events = EventAccumulator(str(tmp_path / "logs" / split))
        events.Reload()
        first = events.Tensors(name)[0]
        width, height, content = first.tensor_proto.string_val
        decoded = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
        assert decoded.shape == (int(height), int(width), 3)
        assert first.step == (0 if split == "train" else 3)


def test_no_pictures_and_no_profile_are_written_where_none_are_asked_for(
    version: DatasetVersion, tmp_path: Path
) -> None:
    trained(version, tmp_path / "with", "run.epochs=1")
    trained(version, tmp_path / "without", "run.epochs=1", "run.log_pictures=false")
    sizes = [sum(path.stat().st_size for path in (tmp_path / name / "logs").rglob("events*"))
             for name in ("with", "without")]  # fmt: skip
    assert sizes[1] < sizes[0] / 4
    assert not (tmp_path / "with" / "logs" / "plugins").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tests.samples.training.keras_callbacks", "is no name of code"),
        ("tests.samples.training.keras_callbacks:mak", "has no function mak"),
        (
            "tests.samples.training.keras_callbacks:make_nothing",
            "returned 'nothing', not a keras.callbacks.Callback",
        ),
    ],
)
def test_names_that_lead_to_no_callback_are_refused(
    version: DatasetVersion, tmp_path: Path, name: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        trained(version, tmp_path, f"run.callbacks=['{name}']")
    assert message in str(caught.value)
