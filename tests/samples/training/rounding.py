"""How exactly two computations in float32 can agree.

Another processor adds up in another order, so results differ by some units of the last place. A loss or a
weight near zero is the rest of larger numbers: its rounding is theirs, and has no relation to its own size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

EPSILON = float(np.finfo(np.float32).eps)


def near(expected: Any, rel: float = 64 * EPSILON) -> Any:
    """Compare with numbers of magnitude 1 or larger, or with what is left of such numbers."""
    return pytest.approx(expected, rel=rel, abs=max(64 * EPSILON, rel / 10))


def apart(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> float:
    """The L2 distance of weights, as a fraction of the norm of the expected ones."""
    weights = {name: value for name, value in expected.items() if value.dtype.kind == "f"}
    assert weights
    assert found.keys() == expected.keys()
    squares = [np.sum((found[name] - value) ** 2, dtype=np.float64) for name, value in weights.items()]
    norms = [np.sum(np.square(value), dtype=np.float64) for value in weights.values()]
    return float(np.sqrt(sum(squares) / sum(norms)))
