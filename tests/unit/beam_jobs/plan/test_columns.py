"""Row numbers as arrays."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from shardmill.beam_jobs.plan.columns import insertion_points


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_values_are_found_among_rising_rows(dtype: type[np.int32] | type[np.int64]) -> None:
    rows = np.array([2, 3, 7], dtype)
    assert insertion_points(rows, [0, 2, 3, 5, 7, 9]).tolist() == [0, 0, 1, 2, 2, 3]
    assert insertion_points(rows, np.arange(2, 4)).tolist() == [0, 1]
    assert insertion_points(rows, []).tolist() == []


def test_a_search_does_not_copy_the_rows() -> None:
    rows = np.arange(1_000_000, dtype=np.int32)
    tracemalloc.start()
    try:
        found = insertion_points(rows, [4096, 8192])
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.tolist() == [4096, 8192]
    assert peak_bytes < rows.nbytes / 10
