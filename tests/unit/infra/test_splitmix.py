"""The hash under every plan and order is the published one."""

from __future__ import annotations

import numpy as np
import pytest

from shardmill.infra.splitmix import splitmix64

GOLDEN = 0x9E3779B97F4A7C15


@pytest.mark.parametrize(
    ("seed", "wanted"),
    [
        (0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]),
        (1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423]),
    ],
)
def test_the_first_outputs_are_those_of_the_reference_code(seed: int, wanted: list[int]) -> None:
    states = np.array([(seed + step * GOLDEN) % 2**64 for step in range(3)], np.uint64)
    given = states.copy()
    assert splitmix64(states).tolist() == wanted
    assert (states == given).all(), "what is given is left alone"
    assert splitmix64(states, out=states) is states
    assert states.tolist() == wanted
