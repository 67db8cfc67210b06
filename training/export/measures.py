"""Measure how well a form of a model does what the model does, one class a task. No framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.floating]
_SAME_PIXELS = 0.99
_CLOSE = 0.1  # two models agree within this share of a target's deviation


class FormMeasure(Protocol):
    """Compares what two models return for the same examples: values [b, K], or of masks [b, S, S, C].

    Attributes:
        output_name: the name of the values in exported models.
        score_name: the name of the mean of ``scores``.
    """

    @property
    def output_name(self) -> str:
        """The name of the values in exported models."""

    @property
    def score_name(self) -> str:
        """The name of the mean of ``scores``."""

    def scores(self, values: Values, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return how right each example is: [b], at most 1."""

    def agree(self, values: Values, others: Values) -> npt.NDArray[np.bool_]:
        """Tell for each example whether both models predict the same: bool [b]."""

    def differences(self, values: Values, others: Values) -> npt.NDArray[Any]:
        """Return how far the values are apart, in a unit in which 1 is much: [b, K]."""


@dataclass(frozen=True, slots=True)
class ClassMeasure:
    """Probabilities of classes, of which the likeliest is predicted. Implements ``FormMeasure``."""

    output_name = "probabilities"
    score_name = "accuracy"

    def scores(self, values: Values, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return whether the class was predicted: bool [b]."""
        return np.asarray(values.argmax(axis=1) == labels)

    def agree(self, values: Values, others: Values) -> npt.NDArray[np.bool_]:
        """Return where both predict the same class: bool [b]."""
        return np.asarray(values.argmax(axis=1) == others.argmax(axis=1))

    def differences(self, values: Values, others: Values) -> npt.NDArray[Any]:
        """Return the differences of the probabilities: [b, C]."""
        return np.abs(values - others)


@dataclass(frozen=True, slots=True)
class LabelsMeasure:
    """Probabilities of classes, each by itself. Implements ``FormMeasure``."""

    output_name = "probabilities"
    score_name = "exact_match"

    def scores(self, values: Values, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return whether exactly the right classes were predicted: bool [b]."""
        return np.asarray(((values > 0.5) == (labels > 0.5)).all(axis=1))

    def agree(self, values: Values, others: Values) -> npt.NDArray[np.bool_]:
        """Return where both predict the same classes: bool [b]."""
        return np.asarray(((values > 0.5) == (others > 0.5)).all(axis=1))

    def differences(self, values: Values, others: Values) -> npt.NDArray[Any]:
        """Return the differences of the probabilities: [b, C]."""
        return np.abs(values - others)


@dataclass(frozen=True, slots=True)
class NumbersMeasure:
    """Numbers. Implements ``FormMeasure``.

    Attributes:
        std: standard deviation of each target over the train split.
    """

    std: tuple[float, ...]
    output_name = "values"
    score_name = "r2"

    def scores(self, values: Values, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the part of each example in R², with the variance of the train split: [b]."""
        return np.asarray(1.0 - np.square((values - labels) / np.array(self.std)).mean(axis=1))

    def agree(self, values: Values, others: Values) -> npt.NDArray[np.bool_]:
        """Return where all numbers differ by less than a tenth of their deviations: bool [b]."""
        return np.asarray((self.differences(values, others) < _CLOSE).all(axis=1))

    def differences(self, values: Values, others: Values) -> npt.NDArray[Any]:
        """Return the differences in deviations of the targets: [b, T]."""
        return np.asarray(np.abs(values - others) / np.array(self.std))


@dataclass(frozen=True, slots=True)
class MaskMeasure:
    """Probabilities of the classes of each pixel: values [b, S, S, C]. Implements ``FormMeasure``.

    Attributes:
        ignore: number of the pixels in labels that belong to no class.
    """

    ignore: int
    output_name = "probabilities"
    score_name = "pixel_accuracy"

    def scores(self, values: Values, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the share of the pixels with a class whose class was predicted: [b]; 1 if none has one."""
        counts = labels != self.ignore
        right = (values.argmax(axis=-1) == labels) & counts
        totals = counts.sum(axis=(1, 2))
        return np.where(totals > 0, right.sum(axis=(1, 2)) / np.maximum(totals, 1), 1.0)

    def agree(self, values: Values, others: Values) -> npt.NDArray[np.bool_]:
        """Return where both predict the same class for 99 % of the pixels and more: bool [b]."""
        same = values.argmax(axis=-1) == others.argmax(axis=-1)
        return np.asarray(same.mean(axis=(1, 2)) >= _SAME_PIXELS)

    def differences(self, values: Values, others: Values) -> npt.NDArray[Any]:
        """Return the differences of the probabilities: [b, S, S, C]."""
        return np.abs(values - others)
