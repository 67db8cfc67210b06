"""The scale at which a large JPEG is decoded, straight from its coefficients, before it is averaged.

Distances are those of photographs to a Lanczos reduction in float64 of the whole picture.
"""

from __future__ import annotations

from collections.abc import Mapping

# Scale (pixels a decoded sample, along each side) -> least number of pixels to one of the result.
# Of stored images: as near as decoded whole, on the average from 0.04 dB farther to 0.3 dB nearer, at worst
# 1 dB farther. With two samples for a new pixel: farther by 0.7 to 1 dB (worst 3.5), as
# tests/benchmarks/prepare/scaled.py prints.
STORED = {8: 23.0, 4: 11.5, 2: 7.0}
# Of images that a model sees, with 1.5 samples or more: farther than decoded whole by 1.1 dB at 3 to 3.5
# pixels (worst 1.4), by 1.7 at 6 to 7 (worst 2.2), else by less than 1 on the average. They differ by
# 39 dB or more from averaging by area in float64 (35 at a scale of 8).
SEEN = {8: 12.0, 4: 6.0, 2: 3.0}


def scale_for(ratio: float, least: Mapping[int, float]) -> int:
    """Return the scale, 1, 2, 4 or 8, for a picture that shrinks by ``ratio``, by a table of this module."""
    return next((scale for scale, from_here_on in least.items() if ratio >= from_here_on), 1)
