"""How ``reading.ram_budget_bytes`` is divided: shuffle buffer, cache, and what ``tf.data`` tunes itself."""

from __future__ import annotations

from dataclasses import dataclass

from infra.errors import ConfigError

DEFAULT_SHUFFLE_EXAMPLES = 10_000
# An example in a shuffle buffer, besides its bytes: tensors and their allocator's rounding.
_EXAMPLE_OVERHEAD_BYTES = 1 << 9


@dataclass(frozen=True, slots=True)
class RamBudget:
    """The parts of a memory budget (bytes).

    Attributes:
        total: what reading may take.
        shuffle: of the shuffle buffer.
        cache: of a cache in memory.
        windows: of an order by block.
    """

    total: int
    shuffle: int = 0
    cache: int = 0
    windows: int = 0

    @property
    def taken(self) -> int:
        """What is counted first."""
        return self.shuffle + self.cache + self.windows

    @property
    def tuned(self) -> int:
        """What is left for ``tf.data`` to divide among parallel calls and prefetching."""
        return self.total - self.taken

    def check(self, batch_bytes: int) -> None:
        """Raises ConfigError where less is left than two batches take: the one in use and the next."""
        if self.tuned < 2 * batch_bytes:
            raise ConfigError(
                f"reading.ram_budget_bytes = {self.total:,}: the shuffle buffer takes {self.shuffle:,}, "
                f"the cache {self.cache:,}, the windows of an order by block {self.windows:,}, "
                f"and two batches need {2 * batch_bytes:,}",
                f"set it to at least {self.taken + 2 * batch_bytes}, or lower reading.shuffle_buffer, "
                "reading.cache_bytes or data.window_blocks",
            )


def shuffle_examples(asked: int | None, ram_budget_bytes: int, mean_example_bytes: float) -> int:
    """Examples in the shuffle buffer; without a wish, what a quarter of the budget holds, at most 10,000."""
    if asked is not None:
        return asked
    room = ram_budget_bytes // 4 / (mean_example_bytes + _EXAMPLE_OVERHEAD_BYTES)
    return max(min(DEFAULT_SHUFFLE_EXAMPLES, int(room)), 1)


def shuffle_bytes(examples: int, mean_example_bytes: float) -> int:
    """Memory of a shuffle buffer that is full."""
    return int(examples * (mean_example_bytes + _EXAMPLE_OVERHEAD_BYTES))
