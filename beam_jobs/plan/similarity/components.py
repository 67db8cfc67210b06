"""Connected components of a graph, computed for whole arrays of edges."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


class Components:
    """The connected components of a growing graph. The smallest node of a component identifies it.

    Hooking and pointer jumping after Shiloach and Vishkin, "An O(log n) parallel connectivity algorithm",
    1982.

    Attributes:
        root: int32 [N], the smallest node of each node's component.
    """

    def __init__(self, num_nodes: int) -> None:
        self.root: Int32 = np.arange(num_nodes, dtype=np.int32)

    def connect(self, one: Int64, other: Int64) -> None:
        """Add edges: int64 [E] each, the nodes at their ends."""
        while True:
            roots_one, roots_other = self.root[one], self.root[other]
            apart = roots_one != roots_other
            if not apart.any():
                return
            one, other = one[apart], other[apart]
            low = np.minimum(roots_one[apart], roots_other[apart])
            high = np.maximum(roots_one[apart], roots_other[apart])
            # Several edges may pull one component to several others. It follows one of them now; the other
            # edges stay for the next round.
            np.minimum.at(self.root, high, low)
            self._flatten()

    def _flatten(self) -> None:
        while True:
            jumped = self.root[self.root]
            if np.array_equal(jumped, self.root):
                return
            self.root = jumped
