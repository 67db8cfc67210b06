"""The shards that each worker streams: every record once, equal steps, weights that add up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.infra.errors import ConfigError, DataError
from shardmill.training.reading.streaming_plan import StreamPlan

shards = st.lists(st.integers(1, 40), min_size=1, max_size=9).map(tuple)


@given(shards=shards, batch=st.integers(1, 30), workers=st.integers(1, 5))
def test_workers_divide_the_shards_and_make_equal_steps(
    shards: tuple[int, ...], batch: int, workers: int
) -> None:
    if workers > min(len(shards), batch):
        return
    plans = [StreamPlan(shards, batch, "pad", worker, workers) for worker in range(workers)]
    assert sorted(shard for plan in plans for shard in plan.shards) == list(range(len(shards)))
    assert sum(plan.own_records for plan in plans) == plans[0].num_records == sum(shards)
    assert len({plan.steps_per_epoch for plan in plans}) == 1
    assert sum(plan.num_rows for plan in plans) == batch
    real = 0
    for step in range(plans[0].steps_per_epoch):
        weights = np.concatenate([plan.weights(step) for plan in plans])
        positions = np.concatenate([plan.positions(step) for plan in plans])
        assert positions.tolist() == list(range(step * batch, (step + 1) * batch))
        assert weights.sum() == pytest.approx(1, abs=1e-5)
        real += int((weights > 0).sum())
    assert real == sum(shards), "every record counts once, padding never"


@given(shards=shards, batch=st.integers(1, 30), workers=st.integers(1, 5))
def test_without_padding_every_row_is_real(shards: tuple[int, ...], batch: int, workers: int) -> None:
    if workers > min(len(shards), batch):
        return
    try:
        plans = [StreamPlan(shards, batch, "drop", worker, workers) for worker in range(workers)]
    except ConfigError:
        return
    for plan in plans:
        assert plan.own_rows_per_epoch <= plan.own_records
        for step in range(plan.steps_per_epoch):
            assert np.allclose(plan.weights(step), 1 / batch)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (((), 4), "no records"),
        (((5, 5), 4, "pad", 0, 3), "2 shards cannot be divided among 3 workers"),
        (((5, 5, 5), 2, "pad", 0, 3), "each needs at least one example"),
        (((3, 3), 8, "drop"), "no full batch of 8"),
    ],
)
def test_what_cannot_be_streamed_is_refused(plan: tuple[object, ...], message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        StreamPlan(*plan)  # type: ignore[arg-type]
