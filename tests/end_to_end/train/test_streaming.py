"""Training from a stream through a cache, interrupted and gone on with."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np

from shardmill.infra.dataset.catalog import Catalog
from shardmill.training.reading import load_table
from tests.samples.datasets.published import coloured, publish
from tests.samples.training.trainer import Trainer, settings, train_here

COUNTS = {"train": {"a": 40, "b": 30}, "validation": {"a": 5, "b": 5}}
READING = {"mode": "streaming", "shuffle_buffer": 16, "cache": "memory"}


def consumed(result: dict[str, Any]) -> list[dict[str, Any]]:
    lines = (Path(result["run_dir"]) / "consumed.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_stream_that_was_interrupted_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    for root in (unbroken, broken):
        publish(root / "datasets", coloured(COUNTS), name="colours", shards_per_split=4)
    config = settings(
        model={"name": "tests.samples.models.linear_model", "dropout": 0.0},
        run={"epochs": 2, "log_every_steps": 1, "trace_records": True},
        reading=READING,
    )
    whole = train_here(unbroken, "colours", config)
    first = Trainer(broken, "colours", config)
    assert first.signal_after(4, signal.SIGTERM)
    assert first.finish()[0] == 75
    resumed = train_here(broken, "colours", config)
    assert resumed["reading"] == whole["reading"]
    assert whole["reading"]["mode"] == "streaming"
    assert whole["reading"]["cache"]["place"] == "memory"
    steps = consumed(whole)
    assert consumed(resumed) == steps
    table = load_table(Catalog(unbroken / "datasets").open("colours"), "train")
    ids = table.ids(np.arange(len(table)))
    for epoch in (0, 1):
        seen = [record for step in steps if step["epoch"] == epoch for record in step["ids"]]
        assert sorted(seen) == sorted(ids)
    assert resumed["metrics"]["validation"] == whole["metrics"]["validation"]
