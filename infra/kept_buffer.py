"""Memory that a thread keeps between calls: fresh pages for each image cost a sixth of decoding it."""

from __future__ import annotations

import threading
from typing import cast

import numpy as np
import numpy.typing as npt

_KEPT_BYTES = 8 << 20  # more is allocated for the call, and given back


class KeptBuffer(threading.local):
    """A buffer for each thread."""

    def __init__(self) -> None:
        self._kept = np.empty(0, np.uint8)

    def at_least(self, num_bytes: int) -> npt.NDArray[np.uint8]:
        """At least so many bytes with arbitrary content: uint8. The thread's next call may give the same."""
        if num_bytes > _KEPT_BYTES:
            return np.empty(num_bytes, np.uint8)
        if self._kept.size < num_bytes:
            self._kept = np.empty(num_bytes, np.uint8)
        return cast(npt.NDArray[np.uint8], self._kept)
