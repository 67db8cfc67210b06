"""One rank that reads through TensorFlow, as a process to be killed.

For each batch it prints a line: the step, counted over the whole run, and the ids of the rank's real records.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from shardmill.training.order import TrainingOrder, rank_slice
from shardmill.training.order.balance.rules import RULES
from shardmill.training.reading.example_spec import ExampleSpec

BATCH_SIZE = 4
SEED = 5


def read(told: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Read from a step to the end of the last epoch."""
    from shardmill import open_dataset
    from shardmill.training.config import AugmentSettings
    from shardmill.training.tensorflow.data.indexed import IndexedPipeline

    reader = open_dataset("set@1", root=told["root"], staging_dir=told.get("staging_dir")).reader("train")
    whole = TrainingOrder(
        reader.table.label, seed=SEED, global_batch_size=BATCH_SIZE, balance=RULES[told["balance"]]
    )
    rows = rank_slice(BATCH_SIZE, told["rank"], told["num_ranks"])
    pipeline = IndexedPipeline(
        reader, whole, ExampleSpec(image_size=16, augment=AugmentSettings()), rows=rows
    )
    stop = told["epochs"] * whole.steps_per_epoch
    pipeline.prepare(told["start"], stop)
    batches = pipeline.dataset(told["start"], stop).as_numpy_iterator()
    for run_step, batch in enumerate(batches, told["start"]):
        ids = reader.table.ids(batch["ordinals"][batch["weights"] > 0])
        yield {"step": run_step, "ids": ids, "pixels": int(batch["images"].sum())}


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    for line in read(told):
        print(json.dumps(line), flush=True)
        time.sleep(told["seconds_a_step"])
