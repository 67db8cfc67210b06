"""A task: what a model learns. The training step, the evaluation and the export know a task only by it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from shardmill.training.metrics.evaluation import Tally
from shardmill.training.reading import RecordReader
from shardmill.training.reading.records.annotations import SplitObjects

if TYPE_CHECKING:
    from shardmill.training.tasks.kind import TaskKind

Values = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class LabelSpec:
    """One tensor of the labels of a batch.

    Attributes:
        feature: the feature of a record that holds it.
        shape: its shape for one example; () for a number. A side is None where examples differ: such tensors
            are padded to the longest of the batch.
        dtype: the type of its elements.
    """

    feature: str
    shape: tuple[int | None, ...]
    dtype: Literal["int32", "float32", "uint8", "bool"]


class Mixed(NamedTuple):
    """The other labels of examples that MixUp or CutMix mixed.

    Attributes:
        labels: those of the partners, in the form of the own labels.
        own_share: float32 [b], the share of the own label; the label of the partner has the rest.
    """

    labels: Any
    own_share: Any

    def targets(self, labels: Any) -> Any:
        """Return own labels, several or numbers, mixed with those of the partners: float32 [b, T]."""
        own = self.own_share[:, None]
        return own * labels + (1.0 - own) * self.labels


class Operations(ABC):
    """The operations of a framework from which tasks are made. All arguments and results are tensors."""

    @abstractmethod
    def class_losses(self, logits: Any, labels: Any, smoothing: float = 0.0) -> Any:
        """Return the softmax cross-entropy (nats): logits float32 [..., C], labels [...] -> [...].

        Args:
            logits: the outputs of the model.
            labels: the class of each.
            smoothing: the share of the target that is spread over all classes (Szegedy et al. 2016).
        """

    @abstractmethod
    def label_losses(self, logits: Any, targets: Any) -> Any:
        """Return the binary cross-entropy (nats) of each class by itself: both float32 [b, C] -> [b, C]."""

    @abstractmethod
    def softmax(self, logits: Any) -> Any:
        """Return probabilities that add up to 1 over the last side."""

    @abstractmethod
    def sigmoid(self, logits: Any) -> Any:
        """Return the probability of each class by itself."""

    @abstractmethod
    def argmax(self, values: Any) -> Any:
        """Return the places of the largest values of the last side: int64 [...]."""

    @abstractmethod
    def mean(self, values: Any) -> Any:
        """Return the mean over the last side."""

    @abstractmethod
    def sum_of_pixels(self, values: Any) -> Any:
        """Return sums over the two sides of an image: [b, S, S] -> [b]."""

    @abstractmethod
    def all(self, values: Any) -> Any:
        """Return whether all of the last side are true."""

    @abstractmethod
    def is_nan(self, values: Any) -> Any:
        """Return which values are NaN: bool [...]."""

    @abstractmethod
    def where(self, condition: Any, values: Any, others: Any) -> Any:
        """Return values where a condition holds, and others elsewhere."""

    @abstractmethod
    def cast(self, values: Any, dtype: str) -> Any:
        """Return values as elements of another type, such as ``"float32"``."""

    @abstractmethod
    def constant(self, values: tuple[float, ...], like: Any) -> Any:
        """Return numbers as a tensor of the type of ``like``, on its device."""


class FormMeasure(ABC):
    """Compares what two forms of a model return for the same examples: [b, K], or of masks [b, S, S, C].

    Attributes:
        output_name: the name of the values in exported models.
        score_name: the name of the mean of ``scores``.
    """

    output_name: ClassVar[str] = "probabilities"
    score_name: ClassVar[str]

    @abstractmethod
    def scores(self, values: Values, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return how right each example is: [b], at most 1."""

    @abstractmethod
    def agree(self, values: Values, others: Values) -> npt.NDArray[np.bool_]:
        """Tell for each example whether both predict the same: bool [b]."""

    def differences(self, values: Values, others: Values) -> npt.NDArray[Any]:
        """Return how far the values are apart, in a unit in which 1 is much: as the values."""
        return np.abs(values - others)


class Task(ABC):
    """What a model learns. All arguments and results are tensors; b is the number of rows of a replica.

    Labels are one tensor [b, ...], or several by name; so are the outputs of a model. The loop and the
    evaluation pass both on as they are, and only ask that the first side of each tensor counts examples.

    Attributes:
        kind: what holds of the task for every dataset.
        score_name: the name of the mean of ``scores`` over the examples of an epoch.
        num_outputs: the number of values that a model gives for each example, or for each place in it.
    """

    __slots__ = ()
    kind: ClassVar[TaskKind]
    score_name: ClassVar[str]
    num_outputs: Any  # an int; a property where it follows from other fields

    @property
    @abstractmethod
    def labels(self) -> LabelSpec | Mapping[str, LabelSpec]:
        """The labels that the task needs: one tensor, or several by name."""

    @abstractmethod
    def training_losses(self, outputs: Any, labels: Any, mixed: Mixed | None = None) -> Any:
        """Return the loss of each example in training, with label smoothing: float32 [b].

        Args:
            outputs: float32, the model's output: [b, O] for classes and numbers.
            labels: as ``self.labels`` says.
            mixed: the labels that were mixed in; None: nothing was mixed.
        """

    @abstractmethod
    def losses(self, outputs: Any, labels: Any) -> Any:
        """Return the loss of each example in evaluation, without label smoothing: float32 [b]."""

    @abstractmethod
    def scores(self, outputs: Any, labels: Any, mixed: Mixed | None = None) -> Any:
        """Return what a training step counts of each example: float32 [b]; for classes 1 for a hit, or 0."""

    @abstractmethod
    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Decode outputs to predictions, as files hold them and people read them: name -> [b, ...]."""

    @abstractmethod
    def served(self, outputs: Any) -> dict[str, Any]:
        """Decode outputs for an exported model: name -> [b, ...], the most important first."""

    def form_measure(self) -> FormMeasure | None:
        """Return how ONNX and LiteRT forms are compared with the model; None: they are not offered."""
        return None

    def tally(self) -> Tally:
        """Return an empty tally of predictions, for the figures of a split."""
        return self.kind.tally(self.num_outputs)

    def evaluated(self, outputs: Any, labels: Any) -> dict[str, Any]:
        """Return all that is kept of each evaluated example: ``losses`` float32 [b], and its predictions."""
        return {"losses": self.losses(outputs, labels), **self.predictions(outputs)}

    def objects(self, reader: RecordReader) -> SplitObjects | None:
        """Return the objects of the records of a split, if they are its labels."""
        return self.kind.objects(reader.split.version, reader.table.split)
