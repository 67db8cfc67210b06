"""Divide each global batch among the ranks, equally or by their measured speed."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from shardmill.infra.arguments import at_least, checked
from shardmill.infra.errors import UsageError

Shares = Sequence[int]


def rank_slice(global_batch_size: int, rank: int, num_ranks: int, shares: Shares | None = None) -> slice:
    """Return the rows of a global batch that a rank takes.

    Rank r takes [floor(B S_r / S), floor(B S_(r+1) / S)), where S_r is the sum of the shares before it and S
    the sum of all shares. The slices of all ranks make up the batch, and have the same sizes in every step.

    Args:
        global_batch_size: rows to share out (B).
        rank: the rank, within range(num_ranks).
        num_ranks: the number of ranks.
        shares: a whole number for each rank, which takes rows in proportion to it; None: equal shares.

    Raises:
        UsageError: there is no such rank; the shares do not fit the ranks, or leave a rank without a row.
    """
    if not 0 <= rank < num_ranks:
        raise UsageError(
            f"rank {rank} of {num_ranks}: ranks count from 0",
            "give num_ranks, the number of all ranks, and a smaller rank" if rank > 0 else None,
        )
    if shares is None:
        return slice(rank * global_batch_size // num_ranks, (rank + 1) * global_batch_size // num_ranks)
    check_shares(shares, global_batch_size, num_ranks)
    return _slices(shares, global_batch_size)[rank]


def check_shares(shares: Shares, global_batch_size: int, num_ranks: int) -> None:
    """Check that the shares fit the ranks.

    Raises:
        UsageError: their number is wrong, one is not a positive whole number, or a rank would get no row.
    """
    if len(shares) != num_ranks:
        raise UsageError(f"{len(shares)} shares for {num_ranks} ranks", "give one share for each rank")
    if any(share < 1 or share != int(share) for share in shares):
        raise UsageError(f"shares {tuple(shares)}: each must be a whole number of at least 1")
    for rank, part in enumerate(_slices(shares, global_batch_size)):
        if part.start == part.stop:
            raise UsageError(
                f"shares {tuple(shares)} leave rank {rank} no row of a global batch of {global_batch_size}",
                "make the global batch larger or the shares more even",
            )


def _slices(shares: Shares, global_batch_size: int) -> list[slice]:
    total, before, slices = sum(shares), 0, []
    for share in shares:
        after = before + share
        slices.append(slice(global_batch_size * before // total, global_batch_size * after // total))
        before = after
    return slices


@checked
def shares_of_speed(seconds_per_example: Sequence[float], global_batch_size: int) -> tuple[int, ...]:
    """Return the number of rows for each rank that lets the slowest rank finish earliest.

    Every rank gets at least one.

    Each row goes to the rank that would then be done first. This is optimal: the largest rows × seconds is as
    small as possible. Of equal ranks the lower one takes the row.

    Args:
        seconds_per_example: the measured time of each rank, as a median over some steps.
        global_batch_size: rows to share out, the sum of the result.

    Raises:
        UsageError: a time is not positive, or there are more ranks than rows.
    """
    at_least(1, global_batch_size=global_batch_size)
    if not seconds_per_example or any(not 0 < time < math.inf for time in seconds_per_example):
        raise UsageError(
            f"seconds per example {tuple(seconds_per_example)}: each must be positive and finite"
        )
    if len(seconds_per_example) > global_batch_size:
        raise UsageError(
            f"a global batch of {global_batch_size} has no row for each of {len(seconds_per_example)} ranks",
            f"set data.global_batch_size to at least {len(seconds_per_example)}",
        )
    rows = [1] * len(seconds_per_example)
    waiting = [(2 * time, rank) for rank, time in enumerate(seconds_per_example)]
    heapq.heapify(waiting)
    for _ in range(global_batch_size - len(rows)):
        _, rank = waiting[0]
        rows[rank] += 1
        heapq.heapreplace(waiting, ((rows[rank] + 1) * seconds_per_example[rank], rank))
    return tuple(rows)
