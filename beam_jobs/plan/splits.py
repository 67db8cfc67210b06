"""Which record goes to which split: given, or each class cut at the exact fractions by hash rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from beam_jobs.plan.hashing import UInt64

Int64 = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]  # index into SPLITS; -1 where there is none

TRAIN = 0


def assign_splits(given: Codes, labels: Int64, ranks: UInt64, fractions: Sequence[float]) -> Codes:
    """The split of each record.

    Args:
        given: int8 [N], the split that the source gives, or -1.
        labels: int64 [N], class of each record.
        ranks: uint64 [N], a hash of each record: within a class, the lowest go to the first split.
        fractions: of each split, summing to 1.

    Returns:
        int8 [N].
    """
    splits = given.copy()
    free = np.flatnonzero(given < 0)
    if not len(free):
        return splits
    ordered = free[np.lexsort((ranks[free], labels[free]))]
    counts = np.bincount(labels[free], minlength=int(labels[free].max()) + 1)
    seats = apportion(counts.astype(np.int64), fractions)
    # Class after class, and in each its seats of train, validation, test: just the order of `ordered`.
    splits[ordered] = np.repeat(
        np.tile(np.arange(len(fractions), dtype=np.int8), len(seats)), seats.reshape(-1)
    )
    return splits


def apportion(counts: Int64, fractions: Sequence[float]) -> Int64:
    """How many records of each class go to each split.

    Each number is the exact share rounded down or up. A class whose shares do not come out even has seats
    left; they go where the classes so far, together, fall short most (largest remainder, carried from class
    to class), so that many small classes also come out at the fractions. The first record of a class goes to
    train, where train gets any: a class that is only tested can never be right.

    Args:
        counts: int64 [classes].
        fractions: of each split, summing to 1.

    Returns:
        int64 [classes, splits], each row summing to the count of its class.
    """
    shares = counts[:, np.newaxis] * np.asarray(fractions, np.float64)
    # 0.1 * 30 is 3.0000000000000004: a share that is whole but for rounding is whole.
    whole = np.rint(shares)
    shares = np.where(np.abs(shares - whole) < 1e-6, whole, shares)
    seats = np.floor(shares).astype(np.int64)
    short = np.zeros(len(fractions))
    for at in range(len(counts)):
        fraction = shares[at] - seats[at]
        short += fraction
        open_to = set(np.flatnonzero(fraction > 0).tolist())
        for _ in range(int(counts[at] - seats[at].sum())):
            if seats[at][TRAIN] == 0 and TRAIN in open_to:
                split = TRAIN
            else:
                split = max(sorted(open_to), key=lambda candidate: round(float(short[candidate]), 9))
            open_to.discard(split)
            seats[at][split] += 1
            short[split] -= 1
    return seats
