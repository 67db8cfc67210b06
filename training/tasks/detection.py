"""Detection: the boxes, also oriented ones, and classes of any number of objects in an image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import UsageError
from shardmill.infra.format.known_features import (
    BOX_NUMBERS,
    BOXES,
    CORNER_NUMBERS,
    CORNERS,
    KEYPOINTS,
    POLYGONS,
)
from shardmill.training.arrays import Ints
from shardmill.training.config import TrainConfig, image_size_of
from shardmill.training.frameworks import load
from shardmill.training.metrics.detection import (
    DetectionEvaluation,
    DetectionTally,
    OrientedEvaluation,
    resampled,
    summarized,
)
from shardmill.training.metrics.evaluation import Evaluation, Rows
from shardmill.training.models.spec import ModelOutput
from shardmill.training.reading.records.annotations import (
    OrientedObjects,
    SplitObjects,
    covers_all,
    load_objects,
    with_unknown_classes,
)
from shardmill.training.tasks.annotated import AnnotatedBoxes
from shardmill.training.tasks.arrow_lists import NUMBERS
from shardmill.training.tasks.kind import Learned, TaskKind
from shardmill.training.tasks.task import Operations, Task

SURE_SCORE = 0.5  # boxes with this score and more count as found, for people


class DetectionKind(TaskKind):
    """Objects, in files of predictions as lists in the same order.

    Attributes:
        width: numbers of a box.
        shape, boxes: the feature that it learns, and its name for people.
    """

    width: ClassVar[int] = BOX_NUMBERS
    shape: ClassVar[str] = BOXES
    boxes: ClassVar[str] = "boxes"

    learned: ClassVar[Learned] = "objects"
    evaluation = DetectionEvaluation
    settings = frozenset({"folds", "repeats", "objects"})
    frameworks = ("tensorflow",)
    output: ClassVar[ModelOutput] = "objects"
    fields = {  # noqa: RUF012  never changed
        "labels": pa.list_(pa.string()),  # classes of the objects
        "boxes": NUMBERS,  # numbers of each, relative to the image: top, left, bottom, right edge, or corners
        "crowds": pa.list_(pa.bool_()),
        "predicted": pa.list_(pa.string()),
        "predicted_boxes": NUMBERS,
        "scores": NUMBERS,
    }
    compared = ("labels", "boxes", "crowds", "predicted", "predicted_boxes", "scores")
    summarizes = True

    def task(self, version: DatasetVersion, config: TrainConfig, operations: Operations) -> Task:
        """Make the task of a dataset version; its losses and boxes need more than ``Operations``."""
        made: Task = load("tensorflow", "detection").Detection(
            len(version.manifest.classes), image_size_of(config)
        )
        return made

    def objects(self, version: DatasetVersion, split: str) -> SplitObjects:
        """Load the objects of the records of a split, with a crowd for each class that is not known."""
        return with_unknown_classes(load_objects(version, split), version, split)

    def notes(self, version: DatasetVersion) -> list[str]:
        """Say which shapes the detector does not learn, and what to do with them."""
        shapes = {feature.name for feature in version.manifest.extra_features}
        remedies = {
            POLYGONS: "draw masks from polygons",
            KEYPOINTS: "set data.objects = 'keypoints' for key points of one object an image",
            CORNERS: "set data.objects = 'oriented' for oriented boxes",
        }
        found = [remedy for name, remedy in remedies.items() if name in shapes - {self.shape}]
        return [f"the detector learns {self.boxes} alone; {', or '.join(found)}"] if found else []

    def tally(self, num_names: int) -> DetectionTally:
        """Return an empty tally."""
        return DetectionTally(num_names)

    def resampled(self, labels: Any, rows: Rows, num_names: int) -> Callable[[Ints], Evaluation]:
        """Return a function that evaluates summarized records, each counted so many times."""
        return resampled(labels, rows, num_names)

    def summarized(self, labels: Any, rows: Rows, num_names: int) -> tuple[Any, Rows]:
        """Return digests of the labels, and the boxes of each record, matched with its objects."""
        return summarized(labels, rows, num_names)

    def arrays(self, names: list[str], labels: Any, rows: Rows) -> list[pa.Array]:
        """Return the columns of n examples: labels and predictions as ``DetectionTally.add`` takes them."""
        is_object, is_found = labels["classes"] >= 0, rows["classes"] >= 0
        known = pa.array(names, pa.string())
        return [
            _lists(known.take(pa.array(labels["classes"][is_object])), is_object),
            _lists(pa.array(labels["boxes"][is_object].ravel()), is_object, self.width),
            _lists(pa.array(labels["crowds"][is_object]), is_object),
            _lists(known.take(pa.array(rows["classes"][is_found])), is_found),
            _lists(pa.array(rows["boxes"][is_found].ravel()), is_found, self.width),
            _lists(pa.array(rows["scores"][is_found]), is_found),
        ]

    def read(self, names: list[str], table: pa.Table) -> tuple[Any, Rows]:
        """Return labels and predictions, as ``DetectionTally.add`` takes them."""
        labels = {
            "boxes": _padded(table["boxes"], np.float32(0), self.width),
            "classes": _classes(names, table["labels"]),
            "crowds": _padded(table["crowds"], np.False_),
        }
        rows = {
            "losses": table["loss"].to_numpy(),
            "boxes": _padded(table["predicted_boxes"], np.float32(0), self.width),
            "classes": _classes(names, table["predicted"]),
            "scores": _padded(table["scores"], np.float32(0)),
        }
        return labels, rows

    def wrong(self, labels: Any, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return where the sure boxes are of other classes than the objects, or more or fewer: bool [n]."""
        ours = zip(_told(labels), _unknown(labels), _sure(rows), strict=True)
        return np.array(
            [
                Counter(one[one >= 0]) != Counter(other[(other >= 0) & ~np.isin(other, unknown)])
                for one, unknown, other in ours
            ],
            bool,
        )

    def label_words(self, names: Sequence[str], labels: Any, row: int) -> str:
        """Return how many objects of each class there are."""
        return _counted(names, _told(labels)[row])

    def predicted_words(self, names: Sequence[str], rows: Rows, row: int) -> str:
        """Return how many objects of each class were surely found."""
        return _counted(names, _sure(rows)[row])

    def annotation(
        self, num_classes: int, labels: Any, rows: Rows, row: int, *, is_whole: bool = True
    ) -> AnnotatedBoxes:
        """Return the boxes of the objects, and those that were surely found, to draw."""
        boxes = labels["boxes"][row][_told(labels)[row] >= 0]
        return AnnotatedBoxes(boxes.tolist(), rows["boxes"][row][_sure(rows)[row] >= 0].tolist())


class OrientedKind(DetectionKind):
    """Oriented boxes: y and x of four corners each, which may lie outside of the image."""

    learned = "oriented"
    evaluation = OrientedEvaluation
    output = "oriented"
    width = CORNER_NUMBERS
    shape, boxes = CORNERS, "oriented boxes"

    def task(self, version: DatasetVersion, config: TrainConfig, operations: Operations) -> Task:
        """Make the task of a dataset version.

        Raises:
            UsageError: its objects have no oriented boxes.
        """
        _check_oriented(version)
        made: Task = load("tensorflow", "oriented").OrientedDetection(
            len(version.manifest.classes), image_size_of(config)
        )
        return made

    def objects(self, version: DatasetVersion, split: str) -> SplitObjects:
        """Load the objects of the records of a split, with their oriented boxes.

        Raises:
            UsageError: they have none.
        """
        _check_oriented(version)
        return with_unknown_classes(OrientedObjects.load(version, split), version, split)


def _check_oriented(version: DatasetVersion) -> None:
    if all(feature.name != CORNERS for feature in version.manifest.extra_features):
        raise UsageError(
            f"data.objects = 'oriented', and the objects of {version.ref} have no oriented boxes"
            f"{f' alike: {differing}' if (differing := version.why_not_joined(CORNERS)) else ''}",
            "take a data set that has them, or leave it out: the detector learns boxes",
        )


def _unknown(labels: Any) -> npt.NDArray[Any]:
    """Return the classes of which it is unknown where they are in the image, -1 elsewhere: [n, M]."""
    return np.where(labels["crowds"] & covers_all(labels["boxes"]), labels["classes"], -1)


def _told(labels: Any) -> npt.NDArray[Any]:
    """Return the classes of the objects without those, -1 elsewhere: [n, M]."""
    return np.where(_unknown(labels) >= 0, -1, labels["classes"])


def _sure(rows: Rows) -> npt.NDArray[Any]:
    """Return the classes of the sure boxes, -1 elsewhere: [n, k]."""
    return np.where(rows["scores"] >= SURE_SCORE, rows["classes"], -1)


def _counted(names: Sequence[str], classes: npt.NDArray[Any]) -> str:
    counts = sorted(Counter(classes[classes >= 0].tolist()).items())
    return (
        ", ".join(names[kind] if number == 1 else f"{number} {names[kind]}" for kind, number in counts)
        or "none"
    )


def _lists(values: pa.Array, is_value: npt.NDArray[np.bool_], width: int = 1) -> pa.ListArray:
    """Return lists of different lengths, ``width`` values for each True in a row: bool [n, k]."""
    offsets = np.concatenate([[0], np.cumsum(is_value.sum(axis=1) * width)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, values)


def _padded(column: pa.ChunkedArray, missing: Any, width: int = 1) -> npt.NDArray[Any]:
    """Return lists with room for the longest: [n, k], or [n, k, width]. The inverse of ``_lists``."""
    lists = column.combine_chunks()
    counts = pc.list_value_length(lists).to_numpy() // width
    values = lists.flatten().to_numpy(zero_copy_only=False)
    return _filled(values.reshape(-1, *([width] if width > 1 else [])), counts, missing)


def _classes(names: list[str], column: pa.ChunkedArray) -> npt.NDArray[Any]:
    lists = column.combine_chunks()
    indexes = pc.index_in(lists.flatten(), pa.array(names, pa.string())).to_numpy()
    return _filled(indexes.astype(np.int32), pc.list_value_length(lists).to_numpy(), np.int32(-1))


def _filled(values: npt.NDArray[Any], counts: Ints, missing: Any) -> npt.NDArray[Any]:
    shape = (len(counts), int(counts.max(initial=0)), *values.shape[1:])
    found = np.full(shape, missing, values.dtype)
    found[np.arange(shape[1]) < counts[:, np.newaxis]] = values
    return found
