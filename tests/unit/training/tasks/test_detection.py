"""The assignment of objects to cells, the losses of a detector, and its boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.known_features import OBJECT_FEATURES
from shardmill.infra.settings import validate
from shardmill.training.config import TrainConfig
from shardmill.training.reading.records.annotations import Objects, Shown, SplitObjects
from shardmill.training.reading.records.shapes import Views
from shardmill.training.tasks.annotated import AnnotatedBoxes
from shardmill.training.tasks.detection import DetectionKind
from shardmill.training.tasks.registry import kind_of
from shardmill.training.tasks.settings import settings_for
from shardmill.training.tensorflow.detection import Detection, focal_losses, overlaps
from shardmill.training.tensorflow.detector_cells import Cells, assign
from shardmill.training.tensorflow.operations import OPERATIONS
from tests.samples.datasets.published import publish_patterned
from tests.samples.training.rounding import EPSILON

SIZE, CLASSES = 128, 3
CELLS = Cells(SIZE)


VIEWS = Views(None, np.full(3, SIZE), np.full(3, SIZE))  # type: ignore[arg-type]


def objects(*rows: tuple[list[float], int, bool], most: int = 4) -> Objects:
    """A batch of one image: (box, class, is a crowd) each."""
    boxes = np.zeros((1, most, 4), np.float32)
    classes = np.full((1, most), -1, np.int32)
    crowds = np.zeros((1, most), np.bool_)
    for number, (box, kind, crowd) in enumerate(rows):
        boxes[0, number], classes[0, number], crowds[0, number] = box, kind, crowd
    return Objects(*map(tf.constant, (boxes, classes, crowds)))


def pixels(top: float, left: float, bottom: float, right: float) -> list[float]:
    return [top / SIZE, left / SIZE, bottom / SIZE, right / SIZE]


def learning(found: Any, kind: int) -> list[list[float]]:
    """The centres (pixels) of the cells that learn a class."""
    mine = found.is_object[0].numpy() & (found.classes[0].numpy() == kind)
    return np.rint(CELLS.centres[mine] * SIZE).tolist()


def test_cells_lie_as_the_model_has_them() -> None:
    assert CELLS.sides == (16, 8, 4)
    assert CELLS.starts == (0, 256, 320)
    assert (CELLS.centres[:2] * SIZE).tolist() == [[4, 4], [4, 12]]
    assert (CELLS.centres[320] * SIZE).tolist() == [16, 16]
    box = CELLS.boxes(tf.zeros([1, 336, 4]))[0]
    assert np.allclose(box[17] * SIZE, [4, 4, 20, 20]), "one stride on all sides of (12, 12)"
    assert np.isfinite(CELLS.boxes(tf.fill([1, 336, 4], 1e9))).all()


def test_an_object_takes_cells_around_its_centre_on_the_map_of_its_size() -> None:
    small = pixels(8, 8, 40, 32)  # centre (24, 20): between cells (20 and 28), in row 3, column 2
    large = pixels(0, 0, 128, 100)
    found = assign(objects((small, 0, False), (large, 1, False)), CELLS)
    expected = [[y, x] for y in (20, 28, 36) for x in (12, 20, 28)]
    assert learning(found, 0) == expected
    assert {tuple(at) for at in learning(found, 1)} <= {
        (y, x) for y in (40, 56, 72, 88) for x in (24, 40, 56, 72)
    }
    strides = CELLS.stride_of[found.is_object[0].numpy() & (found.classes[0].numpy() == 1)]
    assert set(strides.tolist()) == {16.0}
    np.testing.assert_allclose(found.boxes[0][found.is_object[0]][0], small, rtol=1e-6)


def test_the_smaller_object_has_the_cell_that_both_want() -> None:
    outer, inner = pixels(20, 20, 84, 84), pixels(48, 48, 60, 60)
    for rows in ([(outer, 0, False), (inner, 1, False)], [(inner, 1, False), (outer, 0, False)]):
        found = assign(objects(*rows), CELLS)
        assert [52.0, 52.0] in learning(found, 1)
        assert [52.0, 52.0] not in learning(found, 0)
        assert learning(found, 0)


def test_an_object_smaller_than_a_cell_has_the_cell_of_its_centre() -> None:
    found = assign(objects((pixels(1, 1, 3, 3), 2, False), (pixels(126, 126, 128, 128), 1, False)), CELLS)
    assert learning(found, 2) == [[4, 4]]
    assert learning(found, 1) == [[124, 124]]


def test_cells_below_crowds_learn_nothing() -> None:
    crowd, alone = pixels(0, 0, 64, 64), pixels(8, 8, 24, 24)
    found = assign(objects((crowd, 0, True), (alone, 1, False)), CELLS)
    ignored = CELLS.centres[found.is_ignored[0].numpy()] * SIZE
    assert (ignored < 64).all()
    assert len(ignored) + len(learning(found, 1)) == 64 + 16 + 4
    assert learning(found, 0) == []
    nothing = assign(objects(), CELLS)
    assert not nothing.is_object.numpy().any()
    assert not nothing.is_ignored.numpy().any()


edges = st.tuples(*[st.floats(0, 0.9)] * 2, *[st.floats(0.01, 0.5)] * 2)


@given(st.lists(edges, min_size=1, max_size=6), st.randoms())
@settings(deadline=None)
def test_assignment_does_not_depend_on_the_sequence_of_objects(found: Any, chance: Any) -> None:
    rows = [
        ([y, x, min(y + h, 1.0), min(x + w, 1.0)], number % CLASSES, False)
        for number, (y, x, h, w) in enumerate(found)
    ]
    areas = {round((b[2] - b[0]) * (b[3] - b[1]), 9) for b, _, _ in rows}
    if len(areas) < len(rows):
        return  # equal sizes: the later one has the cell
    one = assign(objects(*rows, most=6), CELLS)
    chance.shuffle(rows)
    other = assign(objects(*rows, most=6), CELLS)
    assert np.array_equal(one.is_object, other.is_object)
    is_object = one.is_object.numpy()
    assert np.array_equal(one.boxes.numpy()[is_object], other.boxes.numpy()[is_object])
    centres = np.broadcast_to(CELLS.centres, (1, *CELLS.centres.shape))[is_object]
    boxes, stride = one.boxes.numpy()[is_object], CELLS.stride_of[is_object[0]] / SIZE
    assert (centres > boxes[:, :2] - stride[:, None]).all()
    assert (centres < boxes[:, 2:] + stride[:, None]).all()


@pytest.mark.parametrize(
    ("one", "other", "ratio", "generalised"),
    [
        ([0, 0, 1, 1], [0, 0, 1, 1], 1.0, 1.0),
        ([0, 0, 0.5, 1], [0, 0, 1, 1], 0.5, 0.5),
        ([0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1], 0.0, -0.5),
        ([0, 0, 0.5, 1], [0.25, 0, 0.75, 1], 1 / 3, 1 / 3),
    ],
)
def test_overlaps(one: Any, other: Any, ratio: float, generalised: float) -> None:
    found = overlaps(tf.constant([one], tf.float32), tf.constant([other], tf.float32))
    assert [float(part[0]) for part in found] == pytest.approx([ratio, generalised], abs=1e-6)


def test_the_focal_loss_is_its_formula() -> None:
    logits, targets = np.array([-2.0, 0.0, 3.0] * 2, np.float32), np.array([0.0] * 3 + [1.0] * 3, np.float32)
    p = 1 / (1 + np.exp(-logits.astype(np.float64)))
    expected = np.where(targets > 0, -0.25 * (1 - p) ** 2 * np.log(p), -0.75 * p**2 * np.log(1 - p))
    np.testing.assert_allclose(focal_losses(logits, targets), expected, rtol=0, atol=16 * EPSILON)


def outputs_for(wanted: Objects) -> Any:
    """The output of a perfect detector for these objects."""
    assigned = assign(wanted, CELLS)
    scores = np.where(
        tf.one_hot(assigned.classes, CLASSES) * tf.cast(assigned.is_object, tf.float32)[..., None] > 0,
        8.0,
        -8.0,
    )
    lengths = tf.concat(
        [CELLS.centres - assigned.boxes[..., :2], assigned.boxes[..., 2:] - CELLS.centres], -1
    )
    distances = tf.math.log(tf.maximum(lengths * SIZE / CELLS.stride_of[:, None], 1e-6))
    return tf.concat([tf.cast(scores, tf.float32), distances], axis=-1)


def test_perfect_outputs_have_no_loss_and_decode_to_the_objects() -> None:
    task = Detection(CLASSES, SIZE)
    rows = [(pixels(8, 8, 40, 32), 0, False), (pixels(20, 60, 120, 120), 2, False)]
    wanted = objects(*rows)
    outputs = outputs_for(wanted)
    labels = wanted._asdict()
    assert float(task.losses(outputs, labels)[0]) < 1e-2
    assert float(task.scores(outputs, labels)[0]) == pytest.approx(1.0, abs=1e-4)
    worse = task.losses(outputs + tf.constant([0.0] * 3 + [0.3] * 4), labels)
    assert float(worse[0]) > 0.1
    found = task.predictions(outputs)
    assert found["boxes"].shape == (1, 100, 4)
    assert (found["classes"][0].numpy() >= 0).sum() == 2
    best = {
        int(kind): box
        for kind, box in zip(found["classes"][0, :2], found["boxes"][0, :2].numpy(), strict=True)
    }
    for box, kind, _ in rows:
        np.testing.assert_allclose(best[kind], box, atol=1e-4)


def test_unknown_classes_stand_behind_the_objects_of_an_image() -> None:
    """Records 0 and 1 are of a data set with all classes, 2 and 3 of one without the classes 0 and 2."""
    boxes = np.linspace(0.1, 0.6, 12, dtype=np.float32).reshape(3, 4)
    found = SplitObjects(
        np.array([0, 1, 1, 3, 3]), boxes, np.array([2, 1, 1], np.int32), np.zeros(3, bool), (),
        (np.array([], np.int32), np.array([0, 2], np.int32)), np.array([2, 4]),
    )  # fmt: skip
    assert found.most == 4
    shown = Shown(np.array([2, 0, 3]), np.array([0, 0, 1]), np.array([1, 2, 0]), boxes[[1, 2, 0]], VIEWS)
    batch = found.padded(shown)
    assert batch.classes.tolist() == [[1, 1, 0, 2], [2, -1, -1, -1], [0, 2, -1, -1]]
    assert batch.crowds.tolist() == [[False, False, True, True], [False] * 4, [True, True, False, False]]
    assert batch.boxes[0, 2:].tolist() == batch.boxes[2, :2].tolist() == [[0, 0, 1, 1]] * 2
    assert batch.boxes[0, :2].tolist() == boxes[1:].tolist()


def test_a_class_that_nobody_looked_for_counts_for_nothing() -> None:
    """Class 1 is unknown of the image: it is no negative, and boxes of it are neither right nor wrong."""
    rows = [(pixels(8, 8, 40, 32), 0, False), (pixels(20, 60, 120, 120), 2, False)]
    unknown = ([0.0, 0.0, 1.0, 1.0], 1, True)
    chance = np.random.default_rng(2)
    outputs = tf.constant(chance.normal(size=(1, 336, CLASSES + 4)), tf.float32)
    task, plain, partial = Detection(CLASSES, SIZE), objects(*rows), objects(*rows, unknown)
    logits = outputs[0, :, 1].numpy().astype(np.float64)
    likely, learning = 1 / (1 + np.exp(-logits)), assign(plain, CELLS).is_object[0].numpy().sum()
    left_out = (-0.75 * likely**2 * np.log(1 - likely)).sum() / learning
    losses = [float(task.losses(outputs, one._asdict())[0]) for one in (plain, partial)]
    assert losses[0] - losses[1] == pytest.approx(left_out, rel=1e-4)
    assert (assign(partial, CELLS).is_ignored.numpy() == assign(plain, CELLS).is_ignored.numpy()).all()
    found = {name: part.numpy() for name, part in task.predictions(outputs_for(plain)).items()}
    found["losses"] = np.zeros(1, np.float32)
    found["classes"][0, 2], found["scores"][0, 2] = 1, 0.9
    found["boxes"][0, 2] = pixels(60, 8, 100, 50)
    labels = {name: part.numpy() for name, part in partial._asdict().items()}
    tally, kind = task.tally(), DetectionKind()
    tally.add(labels, found)
    figures = tally.evaluation().to_result(["a", "b", "c"])
    assert [one["support"] for one in figures["per_class"].values()] == [1, 0, 1]
    assert figures["average_precision"] == pytest.approx(1.0)
    read = kind.read(
        ["a", "b", "c"],
        pa.table(kind.arrays(["a", "b", "c"], labels, found), list(kind.fields)).append_column(
            "loss", pa.array(found["losses"])
        ),
    )
    assert not kind.wrong(*read).any()
    assert kind.label_words(["a", "b", "c"], read[0], 0) == "a, c"
    assert len(kind.annotation(3, *read, 0).boxes) == 2


def test_an_image_without_objects_has_a_loss_and_counts_as_found() -> None:
    task = Detection(CLASSES, SIZE)
    empty = objects()
    outputs = tf.fill([1, 336, CLASSES + 4], -8.0)
    assert float(task.losses(outputs, empty._asdict())[0]) < 1e-3
    assert float(task.losses(-outputs, empty._asdict())[0]) > 10
    assert float(task.scores(outputs, empty._asdict())[0]) == 1.0
    assert (task.predictions(outputs)["classes"].numpy() == -1).all()


def test_a_loss_is_a_function_of_its_example_alone() -> None:
    task = Detection(CLASSES, SIZE)
    chance = np.random.default_rng(0)
    batch = [objects((pixels(8, 8, 40, 32), 0, False)), objects((pixels(4, 4, 90, 99), 1, False))]
    labels = {name: tf.concat([getattr(one, name) for one in batch], 0) for name in Objects._fields}
    outputs = tf.constant(chance.normal(size=(2, 336, CLASSES + 4)).astype(np.float32))
    together = task.losses(outputs, labels).numpy()
    apart = [float(task.losses(outputs[row : row + 1], batch[row]._asdict())[0]) for row in (0, 1)]
    np.testing.assert_allclose(together, apart, rtol=64 * EPSILON)


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> DatasetVersion:
    """A version whose records have objects, by its manifest."""
    root = tmp_path_factory.mktemp("sets")
    made = publish_patterned(root, {"train": 4}, several=True, name="objects")
    made.manifest.extra_features.extend(OBJECT_FEATURES)
    return made


def config(**tables: Any) -> TrainConfig:
    return validate(TrainConfig, tables, where="the test")


def test_settings_are_settled_by_the_objects(version: DatasetVersion) -> None:
    settled = settings_for(config(), version)
    assert (settled.data.fit, settled.data.image_size) == ("stretch", 256)
    assert settled.run.best_metric == "average_precision"
    assert settings_for(settled, version) == settled
    task = kind_of(version).task(version, settled, OPERATIONS)
    assert (type(task), task.num_outputs) == (Detection, 3)
    assert settings_for(config(data={"image_size": 96}), version).data.image_size == 96


@pytest.mark.parametrize(
    ("tables", "named"),
    [
        ({"augment": {"mixup": 0.2}}, r"augment\.mixup"),
        ({"augment": {"randaugment": {"num_ops": 2}}}, r"augment\.randaugment"),
        ({"optimizer": {"label_smoothing": 0.1}}, r"optimizer\.label_smoothing"),
        ({"data": {"balance": "sqrt"}}, r"data\.balance"),
        ({"data": {"fit": "crop"}}, r"data\.fit = 'crop' would cut objects off"),
        ({"run": {"best_metric": "accuracy"}}, r"run\.best_metric"),
        ({"run": {"framework": "torch"}}, "TensorFlow only"),
    ],
)
def test_settings_without_a_meaning_for_objects_are_refused(
    version: DatasetVersion, tables: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        settings_for(config(**tables), version)


def test_a_file_of_predictions_holds_all_of_them() -> None:
    chance = np.random.default_rng(0)
    labels = {
        "boxes": chance.random((3, 2, 4)).astype(np.float32),
        "classes": np.array([[0, 2], [1, -1], [-1, -1]], np.int32),
        "crowds": np.array([[True, False], [False, False], [False, False]]),
    }
    rows = {
        "losses": np.array([1.0, 2.0, 3.0], np.float32),
        "boxes": chance.random((3, 4, 4)).astype(np.float32),
        "classes": np.array([[2, 0, -1, -1], [1, 1, 1, -1], [-1] * 4], np.int32),
        "scores": np.array([[0.9, 0.8, 0, 0], [0.7, 0.6, 0.2, 0], [0] * 4], np.float32),
    }
    kind, names = DetectionKind(), ["cat", "dog", "hat"]
    table = pa.table(kind.arrays(names, labels, rows), schema=pa.schema(kind.fields))
    read, again = kind.read(names, table.append_column("loss", pa.array(rows["losses"])))
    tallies = [kind.tally(3) for _ in range(2)]
    for tally, pair in zip(tallies, ((labels, rows), (read, again)), strict=True):
        tally.add(*pair)
        assert kind.wrong(*pair).tolist() == [False, True, False]
        words = [
            (kind.label_words(names, pair[0], row), kind.predicted_words(names, pair[1], row))
            for row in range(3)
        ]
        assert words == [("cat, hat", "cat, hat"), ("dog", "2 dog"), ("none", "none")]
    first, second = (tally.evaluation() for tally in tallies)
    assert first.figures() == second.figures()
    drawn = kind.annotation(3, labels, rows, 1)
    assert isinstance(drawn, AnnotatedBoxes)
    assert (len(drawn.boxes), len(drawn.found)) == (1, 2)
