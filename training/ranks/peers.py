"""The ranks of a run: they exchange values by sums over all of them. Each framework adds up in its own way.

Every rank calls all methods in the same sequence. Values travel as floats, which every device and collective
can add: float32 as they are, integers as float64, which is exact below 2**53. A value from one rank is a sum
to which all others add zeros.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra.strict_json import dump_json

_LEAST_WIDTH = 512


class Peers(ABC):
    """The ranks that train together.

    Attributes:
        rank: the number of this process.
        num_ranks: the number of ranks.
        threads: the processors of this machine for this rank.
        on_batch: is called whenever this process has got a batch.
    """

    def __init__(self, rank: int, num_ranks: int, threads: int = 1) -> None:
        self.rank = rank
        self.num_ranks = num_ranks
        self.threads = threads
        self.on_batch: Callable[[], None] | None = None

    @property
    def is_first(self) -> bool:
        """Whether this process writes the run's files."""
        return self.rank == 0

    @abstractmethod
    def sum_over(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the sum of an array of numbers over several ranks, with the same shape everywhere."""

    @abstractmethod
    def variables_of_first(self, variables: Sequence[Any]) -> None:
        """Give all variables the values that rank 0 has."""

    def total(self, value: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the sum of an array of numbers over all ranks. It has the same shape everywhere."""
        array = np.array(value)
        return array if self.num_ranks == 1 else self.sum_over(array)

    def gather_rows(self, rows: npt.NDArray[Any], own: slice, num_rows: int) -> npt.NDArray[Any]:
        """Return the rows of all ranks one after the other. Ranks may have different numbers of rows.

        Args:
            rows: [b, ...], numbers or booleans, of the same type and trailing shape on all ranks.
            own: the place of these rows among all.
            num_rows: the rows of all ranks together.
        """
        if self.num_ranks == 1:
            return rows
        kind = np.float32 if rows.dtype in (np.float32, np.float16, np.bool_, np.uint8) else np.float64
        whole = np.zeros((num_rows, *rows.shape[1:]), kind)
        whole[own] = rows
        return self.total(whole).astype(rows.dtype)

    def all_values(self, value: Any) -> list[Any]:
        """Return the JSON-able ``value`` of every rank, by rank."""
        if self.num_ranks == 1:
            return [value]
        own = np.frombuffer(dump_json(value).encode(), np.uint8)
        lengths = np.zeros(self.num_ranks, np.float32)
        lengths[self.rank] = own.size
        lengths = self.total(lengths).astype(np.int64)
        # Texts of about the same length share a shape, so that few shapes are traced.
        width = max(_LEAST_WIDTH, 1 << (int(lengths.max()) - 1).bit_length())
        texts = np.zeros((self.num_ranks, width), np.float32)
        texts[self.rank, : own.size] = own
        texts = self.total(texts).astype(np.uint8)
        return [json.loads(bytes(text[:length])) for text, length in zip(texts, lengths, strict=True)]

    def value_of_first(self, value: Any) -> Any:
        """Return the JSON-able ``value`` of rank 0."""
        return self.all_values(value if self.is_first else None)[0]
