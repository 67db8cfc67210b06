"""Ranks in one process, for tests: alone, or with others whose values are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Alone:
    """A single rank."""

    rank = 0
    num_ranks = 1
    is_first = True

    def total(self, value: Any) -> Any:
        return np.asarray(value)

    def all_values(self, value: Any) -> list[Any]:
        return [value]

    def value_of_first(self, value: Any) -> Any:
        return value

    def variables_of_first(self, variables: Any) -> None:
        pass

    def wait_for_first(self) -> None:
        pass


class TwoAlike(Alone):
    """Two ranks that do the same; what ``meanwhile`` does comes while they add up."""

    num_ranks = 2

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] = lambda: None

    def total(self, value: Any) -> Any:
        self.meanwhile()
        return 2 * np.asarray(value)


class WithOthers(Alone):
    """One of several ranks: the others say what is given, whatever they are asked."""

    def __init__(self, rank: int, said: dict[int, Any]) -> None:
        self.rank = rank
        self.num_ranks = len(said) + 1
        self.is_first = rank == 0
        self._said = said

    def all_values(self, value: Any) -> list[Any]:
        return [self._said.get(rank, value) for rank in range(self.num_ranks)]
