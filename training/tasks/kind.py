"""What holds of a task for every dataset and framework: its labels, figures and files of predictions.

A task is one file of this package, with a ``Task`` and a ``TaskKind``, whose figures are one file of
``shardmill.training.metrics``. Every command finds it there. The labels of a dataset choose its task; of two
tasks for the same labels a setting chooses (``shardmill.training.tasks.registry``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.known_features import LabelKind
from shardmill.training.arrays import Ints
from shardmill.training.config import TrainConfig
from shardmill.training.metrics.evaluation import Evaluation, Rows, Tally
from shardmill.training.metrics.figures import CHOOSING
from shardmill.training.models.spec import ModelOutput
from shardmill.training.reading.records.annotations import SplitObjects
from shardmill.training.tasks.annotated import Annotation
from shardmill.training.tasks.task import Operations, Task

Setting = Literal["classes", "folds", "repeats", "mixing", "smoothing", "forms", "objects"]
# A kind of labels that is learned, or objects in images: their labels of kind multi are only their classes.
Learned = LabelKind | Literal["objects", "oriented", "keypoints"]


@dataclass(frozen=True, slots=True)
class Decisions:
    """The columns of predicted image files.

    Attributes:
        output: the output of the exported model that has the values.
        columns: name -> type of the columns that say what was decided.
        decide: (names of the classes or targets, value of each) -> what ``columns`` hold for one file.
        values_column: the name of all values together.
        number: how a value is written as text.
    """

    output: str
    columns: Mapping[str, pa.DataType]
    decide: Callable[[Sequence[str], Sequence[float]], dict[str, Any]]
    values_column: str
    number: str = "{:.6f}"


class TaskKind(ABC):
    """A task, for every dataset.

    Attributes:
        learned: the labels that it learns.
        evaluation: the evaluation of its models, which has its name and figures.
        settings: the groups of settings that have a meaning for it. "classes": what counts or draws one class
            an example (class balance, class weights); "folds": what leaves out a fold, and so the search for
            label errors in train; "repeats": repeat factors,
            which know several labels too; "mixing": MixUp and CutMix; "smoothing": label smoothing; "forms":
            forms of the exported model besides the SavedModel; "objects": what is learned of objects.
        frameworks: those that train it.
        output: what the model gives for an image. Without "classes" the whole image is seen in
            evaluation, and augmentation must move what is annotated.
        decisions: the columns of predicted image files; None: those of ``output``.
        fields: name -> type of its columns in a file of predictions, besides those of every task.
        rows_together: rows of such a file that are decoded at a time.
        compared: its columns that a comparison of two models needs.
        has_numbers: labels and ``predicted`` are numbers [n, T], drawn beside each other.
        is_exact: single examples are predicted rightly or wrongly; otherwise they are compared by loss.
        summarizes: predictions do not fit into memory; ``resampled`` takes what ``summarized`` returns.
    """

    learned: ClassVar[Learned]
    evaluation: ClassVar[type[Evaluation]]
    settings: ClassVar[frozenset[Setting]]
    frameworks: ClassVar[tuple[str, ...]] = ("tensorflow", "torch")
    output: ClassVar[ModelOutput] = "classes"
    decisions: ClassVar[Decisions | None] = None
    fields: ClassVar[Mapping[str, pa.DataType]]
    rows_together: ClassVar[int] = 8192
    compared: ClassVar[tuple[str, ...]]
    has_numbers: ClassVar[bool] = False
    is_exact: ClassVar[bool] = True
    summarizes: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Its name, as in the result of a run and in files of predictions."""
        return self.evaluation.task

    @property
    def figures(self) -> tuple[str, ...]:
        """The figures by which models are chosen and compared; the first one is the default."""
        return CHOOSING[self.name]

    @property
    def finds_places(self) -> bool:
        """Whether it finds places in images."""
        return self.output != "classes"

    @abstractmethod
    def task(self, version: DatasetVersion, config: TrainConfig, operations: Operations) -> Task:
        """Make the task of a dataset version, whose train split has records.

        Raises:
            UsageError, DataError: its labels cannot be learned.
        """

    @abstractmethod
    def tally(self, num_names: int) -> Tally:
        """Return an empty tally, for so many classes or targets."""

    @abstractmethod
    def resampled(self, labels: Any, rows: Rows, num_names: int) -> Callable[[Ints], Evaluation]:
        """Return a function that evaluates N records, each counted so many times: int64 [N].

        Args:
            labels: labels of the records.
            rows: the predictions for them, with ``losses``.
            num_names: the number of classes or targets.
        """

    def summarized(self, labels: Any, rows: Rows, num_names: int) -> tuple[Any, Rows]:
        """Return labels of n records that can be compared [n], and rows that ``resampled`` takes."""
        return labels, rows

    @abstractmethod
    def arrays(self, names: list[str], labels: Any, rows: Rows) -> list[pa.Array]:
        """Return the columns of n examples, in the order of ``fields``.

        Args:
            names: names of the classes or targets.
            labels: as the task needs them: an array [n, ...], or several by name.
            rows: the predictions of the task, each [n, ...].
        """

    @abstractmethod
    def read(self, names: list[str], table: pa.Table) -> tuple[Any, Rows]:
        """Return labels and predictions again, as ``arrays`` took them, with ``losses``."""

    @abstractmethod
    def wrong(self, labels: Any, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return which examples were not predicted rightly: bool [n]."""

    @abstractmethod
    def label_words(self, names: Sequence[str], labels: Any, row: int) -> str:
        """Return the label of one of n examples for people."""

    @abstractmethod
    def predicted_words(self, names: Sequence[str], rows: Rows, row: int) -> str:
        """Return what was predicted for one of n examples, for people."""

    def objects(self, version: DatasetVersion, split: str) -> SplitObjects | None:
        """Return the objects of the records of a split, if they are its labels."""
        return None

    def described(self, version: DatasetVersion) -> dict[str, Any]:
        """Return what else the result of a run says of its task, JSON-able."""
        return {}

    def notes(self, version: DatasetVersion) -> list[str]:
        """Return what people should know of a run on a dataset version."""
        return []

    def likelihoods(self, labels: Any, rows: Rows, row: int) -> tuple[float | None, float | None]:
        """Return the probabilities of the label and of the prediction of an example; None: it has none."""
        return None, None

    def annotation(
        self, num_classes: int, labels: Any, rows: Rows, row: int, *, is_whole: bool = True
    ) -> Annotation | None:
        """Return the label and the prediction of an example to draw; None for labels that are words.

        Args:
            num_classes: the number of classes.
            labels: as ``read`` returns them.
            rows: likewise.
            row: row of the example.
            is_whole: the model sees whole images, not their central squares.
        """
        return None
