"""Turn colour images into images of one channel."""

from __future__ import annotations

import numpy as np

from shardmill.training.reading.decode import Pixels

# ITU-R BT.601 in the fixed point of Pillow: shares of red, green and blue in 2^16. float32 computes the sums
# exactly, since all of them are whole and below 2^24.
LUMA_SHARES = (19595, 38470, 7471)
LUMA_ONE = 1 << 16
_SHARES = np.array(LUMA_SHARES, np.float32)[:, None]


def luma(images: Pixels) -> Pixels:
    """Return the luma of images; three equal channels become one of the same values.

    Args:
        images: uint8 [..., 3].

    Returns:
        uint8 [..., 1].
    """
    sums = images.astype(np.float32) @ _SHARES
    return ((sums.astype(np.int32) + LUMA_ONE // 2) >> 16).astype(np.uint8)
