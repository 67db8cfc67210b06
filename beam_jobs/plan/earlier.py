"""What a plan must know of the version before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from beam_jobs.plan.shards import HeldShards


@dataclass(frozen=True)
class Earlier:
    """The records of the parent version, and its classes.

    Attributes:
        ids: uint64 [N], record ids, rising.
        splits: int8 [N], index into SPLITS of each.
        classes: names, in the order of the parent's label numbers. They are kept, and new classes come after
            them, so that the labels of inherited shards stay valid.
        held: its shards, where they may be inherited; None where all are to be written anew.
    """

    ids: npt.NDArray[np.uint64]
    splits: npt.NDArray[np.int8]
    classes: tuple[str, ...]
    held: HeldShards | None = None

    def split_of(self, ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.int8]:
        """The split that each record had: int8 [M], -1 where the version has no such record.

        Args:
            ids: uint64 [M].
        """
        if not len(self.ids):
            return np.full(len(ids), -1, np.int8)
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[at] == ids, self.splits[at], np.int8(-1)).astype(np.int8)
