"""One process of JAX that reads a dataset: ``python -m tests.samples.training.jax_process JSON``.

It prints which rows of each step its devices hold, and their pixels and labels. Processes with one
coordinator are one run of JAX.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import numpy as np


def main(asked: dict[str, Any]) -> None:
    """Read ``asked["steps"]`` steps from ``asked["begin"]`` on."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    from shardmill import open_dataset

    number, count = asked["process"], asked["num_processes"]
    jax.distributed.initialize(asked["coordinator"], count, number, local_device_ids=[0])
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    dataset = open_dataset(asked["dataset"], root=asked["root"])
    found = []
    batches = dataset.jax("train", sharding=sharding, **asked["begin"], **asked["options"])
    for batch, _ in zip(batches, range(asked["steps"]), strict=False):
        (images,), (labels,) = (array.addressable_shards for array in (batch.images, batch.labels))
        assert images.index[0] == labels.index[0]
        rows = images.index[0].indices(batch.images.shape[0])[:2]
        assert batch.ordinals.size == rows[1] - rows[0]
        digests = [hashlib.sha256(np.asarray(image).tobytes()).hexdigest() for image in images.data]
        found.append([[*batch.images.shape], [*rows], digests, np.asarray(labels.data).tolist()])
    print(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
