"""Oriented boxes: numbers of cells and corners, the loss, and the boxes of a detector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy.linalg import logm, polar

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.format.known_features import CORNER_FEATURE, OBJECT_FEATURES, labels_feature
from shardmill.training.config import TrainConfig
from shardmill.training.metrics.box_matching import box_overlaps, match_boxes
from shardmill.training.predicting.detected import rectangles
from shardmill.training.reading.records.annotations import Objects, OrientedObjects, covers_all
from shardmill.training.tasks.registry import kind_of
from shardmill.training.tasks.settings import check_classes_known, settings_for
from shardmill.training.tensorflow.detector_cells import Cells, assign
from shardmill.training.tensorflow.operations import OPERATIONS
from shardmill.training.tensorflow.oriented import OrientedDetection, gaussians, predicted, similarity
from tests.samples.datasets.published import patterned, publish, publish_patterned
from tests.samples.images.turned_boxes import turned

SIZE, CLASSES = 128, 2
CELLS = Cells(SIZE)
TASK = OrientedDetection(CLASSES, SIZE)
SQUEEZED = [1.0, 0.75]
NUM_CELLS = 336


def bars(seed: int, count: int) -> np.ndarray[Any, Any]:
    """Turned rectangles in a squeezed image: [count, 8]."""
    chance = np.random.default_rng(seed)
    shapes = [
        turned(chance.uniform(0.3, 0.7, 2), chance.uniform(0.03, 0.4, 2), chance.uniform(0, 7)) * SQUEEZED
        for _ in range(count)
    ]
    return np.array(shapes).reshape(count, 8)


def numbers_for(corners: Any, cell: int) -> list[float]:
    """The numbers of a cell that predict a parallelogram, by scipy."""
    stride = CELLS.stride_of[cell] / SIZE
    points = np.reshape(corners, (4, 2)).astype(np.float64)
    matrix = np.stack([points[1] - points[0], points[3] - points[0]], 1) / stride
    matrix = matrix if np.linalg.det(matrix) > 0 else matrix[:, ::-1]
    turn, stretch = polar(matrix, side="left")
    logarithm = logm(stretch)
    down, along = (points.mean(0) - CELLS.centres[cell]) / stride
    mean, half = np.trace(logarithm) / 2, (logarithm[0, 0] - logarithm[1, 1]) / 2
    angle = 4 * np.arctan2(turn[1, 0], turn[0, 0])
    return [down, along, mean - np.log(4), half, logarithm[0, 1], np.cos(angle), np.sin(angle)]


def labels_of(corners: Any, classes: list[int], crowds: list[bool] | None = None) -> dict[str, Any]:
    """A batch of one image."""
    boxes = np.asarray(corners, np.float32).reshape(1, -1, 8)
    marks = np.array([crowds or [False] * len(classes)])
    return Objects(*map(tf.constant, (boxes, np.array([classes], np.int32), marks)))._asdict()


def outputs_for(labels: dict[str, Any]) -> np.ndarray[Any, Any]:
    """The output of a perfect detector."""
    found = assign(Objects(**labels), CELLS)
    outputs = np.zeros((1, NUM_CELLS, CLASSES + 7), np.float32)
    outputs[..., :CLASSES] = -8
    for cell in np.flatnonzero(found.is_object[0]):
        outputs[0, cell, int(found.classes[0, cell])] = 8
        outputs[0, cell, CLASSES:] = numbers_for(found.boxes[0, cell].numpy(), int(cell))
    return outputs


def test_numbers_become_the_corners_of_parallelograms() -> None:
    cells, every = np.random.default_rng(1).permutation(NUM_CELLS)[:50], bars(0, 50)
    numbers = np.zeros((1, NUM_CELLS, 7), np.float32)
    numbers[0, cells] = [numbers_for(box, int(cell)) for box, cell in zip(every, cells, strict=True)]
    found = predicted(tf.constant(numbers), CELLS).corners[0].numpy()[cells]
    assert np.diag(box_overlaps(found, every, np.zeros(50, bool))).min() > 1 - 1e-4


def test_no_number_jumps_where_a_box_looks_the_same_again() -> None:
    """Corners from another one on, or in the other turn, are the same; a small turn changes little."""
    for sides in ([0.3, 0.1], [0.2, 0.2], [0.3, 0.003]):
        angles = np.linspace(0, 2 * np.pi, 721)
        every = np.stack([turned(np.array([0.5, 0.5]), np.array(sides), angle) for angle in angles])
        boxes, turn = gaussians(tf.constant(every.reshape(-1, 8), tf.float32))
        numbers = np.stack([*boxes[:5], *tf.unstack(turn, axis=-1)])
        assert np.abs(np.diff(numbers)).max() < 0.05, "half a degree, four times: 0.035"
        for same in (np.roll(every, 1, axis=1), every[:, ::-1]):
            again, turn_again = gaussians(tf.constant(same.reshape(-1, 8), tf.float32))
            np.testing.assert_allclose(np.stack(again[:5]), np.stack(boxes[:5]), atol=1e-6)
            np.testing.assert_allclose(turn_again, turn, atol=1e-4)


def test_similarity_is_that_of_gaussians_by_integration() -> None:
    (one, other), _ = (np.float32([bars(3, 1)[0], bars(3, 1)[0] + 0.04]), None)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 2, 600)] * 2, indexing="ij"), -1).reshape(-1, 2)
    densities = []
    for corners in (one, other):
        points = corners.reshape(4, 2).astype(np.float64)
        edges = np.stack([points[1] - points[0], points[3] - points[0]], 1)
        spread = edges @ edges.T / 12
        away = grid - points.mean(0)
        density = np.exp(-0.5 * np.einsum("ni,ij,nj->n", away, np.linalg.inv(spread), away))
        densities.append(density / density.sum())
    wanted = 1 - np.sqrt(1 - np.sqrt(densities[0] * densities[1]).sum())
    first, second = (gaussians(tf.constant(corners))[0] for corners in (one, other))
    assert float(similarity(first, second)) == pytest.approx(wanted, abs=1e-3)
    assert float(similarity(first, first)) > 1 - 1e-3


def test_perfect_outputs_have_no_loss_and_decode_to_the_objects() -> None:
    corners = [turned(np.array(at), np.array(sides), angle) * SQUEEZED for at, sides, angle in (
        ([0.3, 0.4], [0.35, 0.07], 0.7), ([0.75, 0.9], [0.2, 0.2], 0.5), ([0.3, 1.3], [0.3, 0.3], 2.0),
    )]  # fmt: skip
    labels = labels_of(corners, [0, 1, 1])
    outputs = outputs_for(labels)
    perfect = float(TASK.losses(outputs, labels)[0])
    assert perfect < 0.01
    assert float(TASK.scores(outputs, labels)[0]) == pytest.approx(1.0, abs=2e-3)
    for number in range(7):
        worse = outputs.copy()
        worse[..., CLASSES + number] += 0.3
        assert float(TASK.losses(worse, labels)[0]) > perfect + 0.02, number
    found = TASK.predictions(tf.constant(outputs))
    assert found["boxes"].shape == (1, 100, 8)
    is_found = found["classes"][0].numpy() >= 0
    assert is_found.sum() == 3
    overlaps = box_overlaps(
        found["boxes"][0].numpy()[is_found], np.reshape(corners, (3, 8)), np.zeros(3, bool)
    )
    assert np.sort(overlaps.max(axis=1)).min() > 0.99
    kinds = np.array([0, 1, 1])[overlaps.argmax(axis=1)]
    assert kinds.tolist() == found["classes"][0].numpy()[is_found].tolist()


def test_cells_of_a_slanted_bar_lie_in_it() -> None:
    bar = turned(np.array([0.5, 0.5]), np.array([0.45, 0.06]), np.pi / 4)
    crowd = turned(np.array([0.15, 0.15]), np.array([0.3, 0.3]), 0.0)
    found = assign(Objects(**labels_of([bar, crowd], [0, 1], [False, True])), CELLS)
    learning = CELLS.centres[found.is_object[0].numpy()]
    across = np.abs((learning - 0.5) @ [1, 1]), np.abs((learning - 0.5) @ [1, -1])
    assert 1 < len(learning) < 9
    assert min(side.max() for side in across) < 0.1
    assert (CELLS.centres[found.is_ignored[0].numpy()] < 0.3).all()


@tf.function
def slope(outputs: Any, labels: Any) -> tuple[Any, Any]:
    """The loss of one image and its gradient."""
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        loss = TASK.losses(outputs, labels)
    return loss, tape.gradient(loss, outputs)


def test_gradients_are_finite_and_lead_to_the_box() -> None:
    labels = labels_of([bars(5, 1)[0], np.zeros(8)], [0, -1])
    outputs = tf.Variable(
        np.random.default_rng(0).normal(0, 1, (1, NUM_CELLS, CLASSES + 7)).astype(np.float32)
    )
    first = float(TASK.losses(outputs, labels)[0])
    for _ in range(100):
        outputs.assign_sub(0.2 * slope(outputs, labels)[1])
    assert float(TASK.losses(outputs, labels)[0]) < 0.4 * first
    for extreme in (0.0, 1e4, -1e4):
        far = tf.Variable(tf.fill([1, NUM_CELLS, CLASSES + 7], extreme))
        for corners in (bars(5, 1)[0], np.full(8, 0.5), turned(np.full(2, 0.5), np.array([0.9, 0.0]), 1.0)):
            found = slope(far, labels_of([np.ravel(corners), np.zeros(8)], [0, -1]))
            assert all(np.isfinite(part).all() for part in found)
    empty = labels_of([np.zeros(8)], [-1])
    assert float(TASK.losses(tf.fill([1, NUM_CELLS, CLASSES + 7], -8.0), empty)[0]) < 1e-3
    assert float(TASK.scores(outputs, empty)[0]) == 1.0
    assert (TASK.predictions(tf.fill([1, NUM_CELLS, CLASSES + 7], -8.0))["classes"].numpy() == -1).all()


def test_a_crowd_over_the_whole_image_ignores_its_class_alone() -> None:
    """It stands for a class that a data set of a mixture does not know, in any order of its corners."""
    whole = np.reshape(OrientedObjects.whole, (4, 2))
    for crowd in (whole, np.roll(whole, 1, axis=0), whole[::-1] * 1.2 - 0.1):
        assert covers_all(crowd.reshape(1, 8)).tolist() == [True]
        outputs = np.full((1, NUM_CELLS, CLASSES + 7), -8, np.float32)
        outputs[..., 1] = 8
        labels = labels_of([crowd], [1], [True])
        assert float(TASK.losses(outputs, labels)[0]) < 1e-3
        assert float(TASK.losses(outputs[..., [1, 0, *range(2, 9)]], labels)[0]) > 10
    beyond = turned(np.array([1.0, 0.5]), np.array([0.4, 0.2]), 0.3)  # half of it lies outside of the image
    _, ignored = match_boxes(beyond.reshape(1, 8), whole.reshape(1, 8), np.array([True]))
    assert ignored.all()
    less = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.9], [0.0, 0.9]])
    for other in (less, np.zeros((4, 2)), whole[[0, 0, 2, 2]], turned(np.ones(2), np.ones(2), 0.3)):
        assert covers_all(other.reshape(1, 8)).tolist() == [False]


def test_classes_that_a_data_set_lacks_are_asked_about(tmp_path: Path) -> None:
    publish_patterned(tmp_path, {"train": 4}, several=True, name="objects")
    several = patterned("train", 4, several=True)
    publish(tmp_path, several, name="other", classes=["red", "green", "rose"], feature=labels_feature("x"))
    joined = Catalog(tmp_path).open_view("objects; other")
    joined.manifest.extra_features.extend([*OBJECT_FEATURES, CORNER_FEATURE])
    with pytest.raises(ConfigError, match="objects@1 has no class 'rose': nothing says"):
        check_classes_known(joined, "oriented")
    check_classes_known(Catalog(tmp_path).open_view("objects; other; missing classes are absent"), "oriented")


def test_predicted_files_have_rectangles() -> None:
    exact = np.stack([turned(np.zeros(2), np.array([30.0, 10.0]), angle) for angle in np.linspace(0, 7, 40)])
    np.testing.assert_allclose(rectangles(exact), exact, atol=1e-9)
    np.testing.assert_allclose(rectangles(exact[:, ::-1]), exact[:, ::-1], atol=1e-9)
    skewed = rectangles(exact @ np.array([[1.0, 0.1], [0.0, 1.0]]))
    sides = np.diff(skewed[:, [0, 1, 2, 3, 0]], axis=1)
    np.testing.assert_allclose((sides[:, 0] * sides[:, 1]).sum(axis=1), 0, atol=1e-9)
    assert np.isfinite(rectangles(np.zeros((1, 4, 2)))).all()


def test_a_data_set_without_oriented_boxes_is_refused(tmp_path: Any) -> None:
    version = publish_patterned(tmp_path, {"train": 4}, several=True, name="objects")
    version.manifest.extra_features.extend(OBJECT_FEATURES)
    asked = TrainConfig.model_validate({"data": {"objects": "oriented"}})
    kind = kind_of(version, "oriented")
    assert settings_for(asked, version).data.fit == "stretch"
    with pytest.raises(UsageError, match="the objects of objects@1 have no oriented boxes"):
        kind.task(version, asked, OPERATIONS)
    with pytest.raises(UsageError, match="take a data set that has them"):
        kind.objects(version, "train")
    version.manifest.extra_features.append(CORNER_FEATURE)
    assert isinstance(kind.task(version, asked, OPERATIONS), OrientedDetection)
    assert kind.notes(version) == []
    assert "'oriented'" in kind_of(version).notes(version)[0]
