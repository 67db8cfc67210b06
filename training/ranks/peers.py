"""The interface by which the ranks of a run exchange values. No framework.

All methods must be called by every rank, in the same sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt


class Peers(Protocol):
    """The ranks that train together, as ``shardmill.training.tensorflow.ranks.group`` makes them."""

    @property
    def rank(self) -> int:
        """The number of this process."""

    @property
    def num_ranks(self) -> int:
        """The number of ranks."""

    @property
    def is_first(self) -> bool:
        """Whether this process writes the run's files."""

    def total(self, value: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the sum of a float array over all ranks. It has the same shape everywhere."""

    def all_values(self, value: Any) -> list[Any]:
        """Return the JSON-able ``value`` of every rank, by rank."""

    def value_of_first(self, value: Any) -> Any:
        """Return the JSON-able ``value`` of rank 0."""

    def variables_of_first(self, variables: Sequence[Any]) -> None:
        """Give all variables the values that rank 0 has."""
