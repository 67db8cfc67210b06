"""PNM: grey and RGB of at most 8 bits, against the definition of the format."""

from __future__ import annotations

import numpy as np
import pytest

from shardmill.infra.codecs.formats import WHITE, ImageRejected, Wanted, check_format
from shardmill.infra.codecs.pillow.decode import decode_with_pillow

WANTED = Wanted(3, 1000, WHITE, allow_truncated=False)


def pnm(kind: str, largest: int, samples: np.ndarray) -> bytes:
    height, width = samples.shape[:2]
    return f"{kind}\n# a comment\n{width} {height}\n{largest}\n".encode() + samples.tobytes()


@pytest.mark.parametrize("largest", [255, 100, 15])
@pytest.mark.parametrize(("kind", "channels"), [("P5", 1), ("P6", 3)])
def test_samples_are_shares_of_the_largest_value(kind: str, channels: int, largest: int) -> None:
    samples = np.random.default_rng(1).integers(0, largest + 1, (5, 7, channels)).astype(np.uint8)
    data = pnm(kind, largest, samples)
    assert check_format(data) == "ppm"
    decoded = decode_with_pillow(data, "ppm", WANTED).whole()
    shares = np.rint(samples.astype(np.float64) * 255 / largest)
    np.testing.assert_array_equal(decoded.pixels, np.broadcast_to(shares, (5, 7, 3)))
    with pytest.raises(ImageRejected, match="ends early"):
        decode_with_pillow(data[:-9], "ppm", WANTED)


@pytest.mark.parametrize("largest", [256, 65_535])
def test_more_than_8_bits_are_refused(largest: int) -> None:
    for kind, channels in (("P5", 1), ("P6", 3)):
        data = pnm(kind, largest, np.zeros((5, 7, channels), ">u2"))
        with pytest.raises(ImageRejected, match="more than 8 bits") as caught:
            decode_with_pillow(data, "ppm", WANTED).whole()
        assert caught.value.reason == "unsupported"
