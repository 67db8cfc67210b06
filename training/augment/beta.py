"""Quantiles of the symmetric beta distribution, from which MixUp and CutMix draw their shares.

Written out because the project has no SciPy, and because a library's rejection sampling would take an
unknown number of draws where a position has to have exactly one.
"""

from __future__ import annotations

import functools

import numpy as np

from shardmill.training.arrays import Floats

_CELLS = 4096


def beta_quantiles(draws: Floats, alpha: float) -> Floats:
    """Return the quantiles of Beta(alpha, alpha) at the probabilities ``draws``, exact within 1e-6.

    Args:
        draws: float64 [B].
        alpha: above 0; 1 is the uniform distribution.

    Returns:
        float64 [B], in [0, 1].
    """
    probabilities, powers = _lower_half(alpha)
    mirrored = draws > 0.5
    lower = np.where(mirrored, 1.0 - draws, draws)
    half: Floats = np.interp(lower, probabilities, powers) ** (1.0 / alpha)
    return np.where(mirrored, 1.0 - half, half)


@functools.lru_cache(maxsize=16)
def _lower_half(alpha: float) -> tuple[Floats, Floats]:
    """Return the lower half of the distribution: (cumulated probabilities, powers x**alpha).

    In s = x**alpha the density is proportional to (1 - x)**(alpha - 1), which is bounded, whereas in x it has
    a pole at 0 for alpha below 1. So the trapezoidal rule over s is exact enough.
    """
    values = 0.5 * np.linspace(0.0, 1.0, _CELLS + 1) ** 4  # close together where small, for small alphas
    powers = values**alpha
    density = (1.0 - values) ** (alpha - 1.0)
    cumulated = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) * np.diff(powers))])
    return 0.5 * cumulated / cumulated[-1], powers
