"""The record ids of each step as the TensorFlow pipeline has them, in an environment with TensorFlow.

``python -m tests.torch.tensorflow_steps JSON`` prints a list of steps, each a list of ids.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from shardmill import open_dataset
from shardmill.training.order import TrainingOrder
from shardmill.training.order.balance.rules import RULES
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.tensorflow.data.indexed import IndexedPipeline


def steps(root: str, seed: int, global_batch_size: int, balance: str, epochs: int) -> list[Any]:
    """For each step of all epochs: ids, labels, weights."""
    dataset = open_dataset("set@1", root=root)
    reader = dataset.reader("train")
    order = TrainingOrder(
        reader.table.label, seed=seed, global_batch_size=global_batch_size, balance=RULES[balance]
    )
    pipeline = IndexedPipeline(reader, order, ExampleSpec(image_size=16))
    batches = pipeline.dataset(0, epochs * order.steps_per_epoch).as_numpy_iterator()
    return [
        [reader.table.ids(batch["ordinals"]), batch["labels"].tolist(), batch["weights"].tolist()]
        for batch in batches
    ]


if __name__ == "__main__":
    print(json.dumps(steps(**json.loads(sys.argv[1]))))
