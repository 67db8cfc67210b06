"""Each task against Keras' own losses, and in the training step on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardmill.training.config import TrainConfig

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from shardmill.training.augment.parameters import draw_batch_parameters  # noqa: E402
from shardmill.training.tasks.multi_label import MultiLabel  # noqa: E402
from shardmill.training.tasks.regression import Regression  # noqa: E402
from shardmill.training.tasks.single_label import SingleLabel  # noqa: E402
from shardmill.training.tasks.task import Mixed, Task  # noqa: E402
from shardmill.training.tensorflow.operations import OPERATIONS  # noqa: E402
from shardmill.training.tensorflow.parts import DeviceTotals, TrainingParts  # noqa: E402
from shardmill.training.tensorflow.ranks.strategy import make_strategy  # noqa: E402
from shardmill.training.tensorflow.step import TrainStep  # noqa: E402
from tests.samples.training.unknown_classes import unknown_classes_by_numpy, with_unknown  # noqa: E402

RANDOM = np.random.default_rng(5)
OUTPUTS = RANDOM.normal(size=(8, 3)).astype(np.float32)
CLASSES = RANDOM.integers(0, 3, 8).astype(np.int32)
SEVERAL = (RANDOM.random((8, 3)) > 0.5).astype(np.float32)
PARTIAL = with_unknown(SEVERAL)
NUMBERS = RANDOM.normal(size=(8, 3)).astype(np.float32) * 10 + 100
SHARES = np.array([0.7, 0.7, 0.2, 0.2, 1.0, 1.0, 0.4, 0.4], np.float32)
PARTNERS = np.arange(8) ^ 1
REGRESSION = Regression(OPERATIONS, mean=(100.0, 90.0, 110.0), std=(10.0, 5.0, 20.0))

TASKS: list[tuple[Task, np.ndarray]] = [
    (SingleLabel(OPERATIONS, 3), CLASSES),
    (SingleLabel(OPERATIONS, 3, label_smoothing=0.1), CLASSES),
    (MultiLabel(OPERATIONS, 3), SEVERAL),
    (MultiLabel(OPERATIONS, 3, label_smoothing=0.1), SEVERAL),
    (MultiLabel(OPERATIONS, 3, is_partial=True), PARTIAL),
    (REGRESSION, NUMBERS),
]


def mixed(targets: np.ndarray) -> np.ndarray:
    return SHARES[:, None] * targets + (1 - SHARES[:, None]) * targets[PARTNERS]


def of_partners(labels: np.ndarray) -> Mixed:
    return Mixed(tf.constant(labels[PARTNERS]), tf.constant(SHARES))


def losses_of_keras(task: Task, targets: np.ndarray) -> np.ndarray:
    smoothing = getattr(task, "label_smoothing", 0.0)
    if isinstance(task, SingleLabel):
        loss = keras.losses.CategoricalCrossentropy(True, smoothing, reduction=None)
    elif isinstance(task, MultiLabel):
        loss = keras.losses.BinaryCrossentropy(True, smoothing, reduction=None)
    else:
        loss = keras.losses.MeanSquaredError(reduction=None)
        targets = (targets - REGRESSION.mean) / REGRESSION.std
    return loss(targets, OUTPUTS).numpy()


@pytest.mark.parametrize(("task", "labels"), [one for one in TASKS if one[1] is not PARTIAL])
def test_losses_are_those_of_keras(task: Task, labels: np.ndarray) -> None:
    targets = np.eye(3)[labels] if isinstance(task, SingleLabel) else labels
    labels = tf.constant(labels)
    plain = task.training_losses(OUTPUTS, labels).numpy()
    assert plain == pytest.approx(losses_of_keras(task, targets), rel=1e-5)
    both = task.training_losses(OUTPUTS, labels, of_partners(labels.numpy())).numpy()
    assert both == pytest.approx(losses_of_keras(task, mixed(targets)), rel=1e-5)
    assert plain.dtype == both.dtype == np.float32
    if not getattr(task, "label_smoothing", 0.0):
        assert task.losses(OUTPUTS, labels).numpy() == pytest.approx(plain)


@pytest.mark.parametrize("shares", [None, SHARES], ids=["plain", "mixed"])
def test_unknown_classes_count_for_nothing(shares: np.ndarray | None) -> None:
    expected, hits = unknown_classes_by_numpy(OUTPUTS, PARTIAL, shares, smoothing=0.1)
    task, others = (
        MultiLabel(OPERATIONS, 3, 0.1, is_partial=True),
        None if shares is None else of_partners(PARTIAL),
    )
    outputs = tf.Variable(OUTPUTS)
    with tf.GradientTape() as tape:
        losses = task.training_losses(outputs, tf.constant(PARTIAL), others)
    assert losses.numpy() == pytest.approx(expected, rel=1e-5)
    assert task.scores(OUTPUTS, tf.constant(PARTIAL), others).numpy().tolist() == hits.tolist()
    gradient = tape.gradient(losses, outputs).numpy()
    assert np.isfinite(gradient).all()
    assert shares is not None or (gradient[np.isnan(PARTIAL)] == 0).all()


def test_scores() -> None:
    single, several = SingleLabel(OPERATIONS, 3), MultiLabel(OPERATIONS, 3)
    hits = OUTPUTS.argmax(axis=1) == CLASSES
    assert single.scores(OUTPUTS, CLASSES).numpy().tolist() == hits.astype(float).tolist()
    dominating = np.where(SHARES >= 0.5, CLASSES, CLASSES[PARTNERS])
    of_mixed = OUTPUTS.argmax(axis=1) == dominating
    assert (
        single.scores(OUTPUTS, CLASSES, of_partners(CLASSES)).numpy().tolist()
        == of_mixed.astype(float).tolist()
    )
    right = np.where(SEVERAL > 0, 1.0, -1.0).astype(np.float32)
    right[3, 1] *= -1
    assert several.scores(right, SEVERAL).numpy().tolist() == [1, 1, 1, 0, 1, 1, 1, 1]
    errors = np.abs(OUTPUTS * REGRESSION.std + REGRESSION.mean - NUMBERS).mean(axis=1)
    assert REGRESSION.scores(OUTPUTS, NUMBERS).numpy() == pytest.approx(errors, rel=1e-4)


@pytest.mark.parametrize(("task", "labels"), TASKS)
def test_what_is_kept_of_an_example_makes_the_figures(task: Task, labels: np.ndarray) -> None:
    rows = {name: np.asarray(part) for name, part in task.evaluated(OUTPUTS, labels).items()}
    assert {len(part) for part in rows.values()} == {8}
    tally = task.tally()
    tally.add(labels, rows)
    figures = tally.evaluation().figures()
    assert figures["loss"] == pytest.approx(float(task.losses(OUTPUTS, labels).numpy().mean()), rel=1e-6)
    assert figures[task.score_name] == pytest.approx(
        float(task.scores(OUTPUTS, labels).numpy().mean()), rel=1e-5
    )


def test_regression_refuses_targets_that_never_change() -> None:
    with pytest.raises(ValueError, match="std above 0"):
        Regression(OPERATIONS, mean=(1.0, 2.0), std=(1.0, 0.0))


def coloured_batch(labels: np.ndarray, images: np.ndarray, config: TrainConfig) -> dict[str, Any]:
    draws = draw_batch_parameters(config.augment, 0, 0, np.arange(8), 8)
    weights = np.array([1 / 6] * 6 + [0, 0], np.float32)
    return {
        "images": tf.constant(images),
        "labels": tf.constant(labels),
        "weights": tf.constant(weights),
        "parameters": tf.nest.map_structure(tf.constant, draws),
    }


IMAGES = RANDOM.integers(0, 256, (8, 8, 8, 3)).astype(np.uint8)
COLOURS = IMAGES.mean(axis=(1, 2)).astype(np.float32)


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        (SingleLabel(OPERATIONS, 3), COLOURS.argmax(axis=1).astype(np.int32)),
        (MultiLabel(OPERATIONS, 3), (np.median(COLOURS, axis=0) < COLOURS).astype(np.float32)),
        (Regression(OPERATIONS, tuple(COLOURS.mean(axis=0)), tuple(COLOURS.std(axis=0))), COLOURS),
    ],
    ids=["single_label", "multi_label", "regression"],
)
@pytest.mark.parametrize("augment", [{}, {"mixup": 0.4}], ids=["plain", "mixed"])
def test_the_training_step_learns_the_task(task: Task, labels: np.ndarray, augment: dict[str, float]) -> None:
    """From arrays: no dataset can hold labels of the other tasks yet."""
    config = TrainConfig.model_validate({"augment": augment})
    strategy = make_strategy("one")
    with strategy.scope():
        keras.utils.set_random_seed(2)
        layers = [keras.layers.GlobalAveragePooling2D(), keras.layers.BatchNormalization(momentum=0.5)]
        model = keras.Sequential([keras.Input((8, 8, 3)), *layers, keras.layers.Dense(task.num_outputs)])
        optimizer = keras.optimizers.SGD(0.3)
        optimizer.build(model.trainable_variables)
        totals = DeviceTotals()
    unused: Any = None
    parts = TrainingParts(strategy, task, unused, model, optimizer, unused, unused, totals, averages=None)
    train_step = TrainStep(config, parts, 8)

    def step() -> tuple[float, float]:
        train_step(batch, 0, 6)
        sums = totals.take()
        return sums.loss / 6, sums.score

    batch = coloured_batch(labels, IMAGES, config)
    losses, scores = zip(*[step() for _ in range(40)], strict=True)
    assert losses[-1] < 0.8 * losses[0]
    if not augment:
        logits = tf.cast(model(batch["images"], training=True), tf.float32)
        wanted = task.scores(logits, labels).numpy()[:6].sum()
        assert step()[1] == pytest.approx(float(wanted), rel=1e-4), "padding does not count"
    assert min(scores) >= 0
