"""The meaning of the values of a prediction: a class for each task. No framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa


class Decisions(Protocol):
    """The columns of a file of predictions of one task.

    Attributes:
        output: the output of the exported model that has the values.
        columns: name -> type of the columns that say what was decided.
        values_column: the name of all values together.
        number: how a value is written as text.
    """

    output: str
    columns: Mapping[str, pa.DataType]
    values_column: str
    number: str

    def decide(self, names: Sequence[str], values: Sequence[float]) -> dict[str, Any]:
        """Return what ``columns`` hold for one file.

        Args:
            names: names of the classes or targets.
            values: value of each of them.
        """


class OneClass:
    """The likeliest class. Implements ``Decisions``."""

    output = values_column = "probabilities"
    columns: Mapping[str, pa.DataType] = {"predicted": pa.string(), "probability": pa.float32()}
    number = "{:.6f}"

    def decide(self, names: Sequence[str], values: Sequence[float]) -> dict[str, Any]:
        """Return the name of the likeliest class, and its probability."""
        label = int(np.argmax(values))
        return {"predicted": names[label], "probability": values[label]}


class SeveralLabels:
    """All classes that are more likely than not. Implements ``Decisions``."""

    output = values_column = "probabilities"
    columns: Mapping[str, pa.DataType] = {"predicted": pa.list_(pa.string())}
    number = "{:.6f}"

    def decide(self, names: Sequence[str], values: Sequence[float]) -> dict[str, Any]:
        """Return the names of the classes."""
        return {"predicted": [name for name, value in zip(names, values, strict=True) if value > 0.5]}


class Numbers:
    """A number for each target: there is nothing to decide. Implements ``Decisions``."""

    output = "values"
    columns: Mapping[str, pa.DataType] = {}
    values_column = "predicted"
    number = "{:.7g}"

    def decide(self, _names: Sequence[str], _values: Sequence[float]) -> dict[str, Any]:
        """Return nothing."""
        return {}


# By the task in the result of a run.
DECISIONS: Final[Mapping[str, Decisions]] = {
    "single-label": OneClass(),
    "multi-label": SeveralLabels(),
    "regression": Numbers(),
}
