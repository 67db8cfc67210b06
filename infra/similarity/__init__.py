"""Which images look the same, by the looks that their indexes keep: numpy alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LookRules:
    """How much looks may differ, and which copies are looked for.

    Attributes:
        max_difference: the largest difference: 0 the same, 1 nothing in common.
        symmetries: mirrored and turned copies too.
        crops: copies cut by up to 5 % at each side too.
        max_distance: bits of 64 in which the hashes of two images may differ for a comparison.
    """

    max_difference: float = 0.035
    symmetries: bool = True
    crops: bool = True
    max_distance: int = 6
