"""Ranks in one process, for tests: alone, or with others whose values are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardmill.training.ranks.peers import Peers


class Alone(Peers):
    """A single rank."""

    def __init__(self, rank: int = 0, num_ranks: int = 1) -> None:
        super().__init__(rank, num_ranks)

    def sum_over(self, array: Any) -> Any:
        return array

    def variables_of_first(self, variables: Any) -> None:
        pass


class TwoAlike(Alone):
    """Two ranks that do the same; what ``meanwhile`` does comes while they add up."""

    def __init__(self) -> None:
        super().__init__(0, 2)
        self.meanwhile: Callable[[], None] = lambda: None

    def sum_over(self, array: Any) -> Any:
        self.meanwhile()
        return 2 * array


class WithOthers(Alone):
    """One of several ranks: the others say what is given, whatever they are asked."""

    def __init__(self, rank: int, said: dict[int, Any]) -> None:
        super().__init__(rank, len(said) + 1)
        self._said = said

    def all_values(self, value: Any) -> list[Any]:
        return [self._said.get(rank, value) for rank in range(self.num_ranks)]
