"""Work that is cut into numbers, blocks to encode or shards to assemble: what Beam deals out, without Beam.

A number is worked on by itself, anywhere: what is needed for it lies in storage or in the ``Work``, what
comes of it goes to storage. Doing it twice writes the same bytes twice.
"""

from __future__ import annotations

from typing import Protocol


class Work(Protocol):
    """Work on numbers. Can be pickled before it is opened."""

    name: str

    def open(self) -> None:
        """Open what all numbers need; called once in each worker, before the first of them."""

    def do(self, number: int) -> None:
        """Do the work that the number stands for.

        Raises:
            ShardmillError: it cannot be done.
        """

    def close(self) -> None:
        """Let go of what was opened."""
