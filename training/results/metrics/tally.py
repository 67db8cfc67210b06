"""Interfaces: sums over the batches of a split, and the evaluation that they give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy.typing as npt

Rows = Mapping[str, npt.NDArray[Any]]


class Evaluation(Protocol):
    """The outcome of evaluating a model on a split."""

    @property
    def num_examples(self) -> int:
        """The number of evaluated examples."""

    def figures(self) -> dict[str, float]:
        """Return the figures by name, among them ``loss``; see ``shardmill.training.results.metrics``."""

    def to_result(self, classes: list[str]) -> dict[str, Any]:
        """Return the evaluation as a JSON object for the result of a run."""


class Tally(Protocol):
    """Sums up predictions, batch by batch, in memory that grows by a few bytes for each found box at most."""

    def add(self, labels: Any, rows: Rows) -> None:
        """Count examples.

        Args:
            labels: as the task needs them: an array [n, ...], or several by name.
            rows: ``losses`` float32 [n] and the predictions of the task, each [n, ...].
        """

    def evaluation(self) -> Evaluation:
        """Return the figures of all examples so far."""
