"""Training from a stream through a cache, interrupted and gone on with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shardmill.infra.errors import Cancelled
from shardmill.training.reading import load_table
from tests.samples.datasets.published import coloured, publish
from tests.samples.training.sessions import StopAfter, last_state, trained

pytest.importorskip("tensorflow")

COUNTS = {"train": {"a": 40, "b": 30}, "validation": {"a": 5, "b": 5}}
STREAMED = [
    "run.epochs=2", "run.trace_records=true", "run.log_every_steps=1",
    "reading.mode=streaming", "reading.shuffle_buffer=16", "reading.cache=memory",
]  # fmt: skip


def test_a_stream_that_was_interrupted_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    version = publish(tmp_path / "datasets", coloured(COUNTS), name="colours", shards_per_split=4)
    _, whole = trained(version, unbroken, *STREAMED)
    with pytest.raises(Cancelled):
        trained(version, broken, *STREAMED, stop=StopAfter(4))
    _, resumed = trained(version, broken, *STREAMED)
    consumed = (unbroken / "consumed.jsonl").read_text()
    assert (broken / "consumed.jsonl").read_text() == consumed
    steps = [json.loads(line) for line in consumed.splitlines()]
    ids = load_table(version, "train").ids(np.arange(70))
    for epoch in (0, 1):
        seen = [record for step in steps if step["epoch"] == epoch for record in step["ids"]]
        assert sorted(seen) == sorted(ids)
    state = last_state(unbroken)
    assert all(np.array_equal(last_state(broken)[name], state[name]) for name in state)
    assert resumed.figures() == whole.figures()
