"""The scale at which a large JPEG is decoded, straight from its coefficients, before it is averaged.

The figures in dB compare photographs with a Lanczos reduction in float64 of the whole picture.
"""

from __future__ import annotations

from collections.abc import Mapping

# Scale (pixels a decoded sample, along each side) -> least number of pixels to one of the result.
# For stored images. They are as near as images decoded whole: on average between 0.04 dB farther and 0.3 dB
# nearer, at worst 1 dB farther. With only two samples for each new pixel they would be 0.7 to 1 dB farther,
# at worst 3.5. tests/benchmarks/prepare/scaled.py prints these figures.
STORED = {8: 23.0, 4: 11.5, 2: 7.0}
# For images that a model sees: 1.5 samples or more for each new pixel. On average they are farther than
# images decoded whole by 1.1 dB where 3 to 3.5 pixels become one (worst 1.4), by 1.7 dB where 6 to 7 do
# (worst 2.2), and elsewhere by less than 1 dB. They differ by 39 dB or more from averaging by area in float64
# (35 at a scale of 8).
SEEN = {8: 12.0, 4: 6.0, 2: 3.0}


def scale_for(ratio: float, least: Mapping[int, float]) -> int:
    """Return the scale, 1, 2, 4 or 8, for a picture that shrinks by ``ratio``, by a table of this module."""
    return next((scale for scale, from_here_on in least.items() if ratio >= from_here_on), 1)
