"""One process of JAX, with two devices: ``python -m tests.samples.training.jax_process JSON``.

It reads a dataset and prints which rows of each step its devices hold, with their pixels and labels, and what
is said of wrong arguments. Processes with one coordinator are one run of JAX.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Any

import numpy as np

from shardmill import open_dataset
from shardmill.infra.errors import UsageError


def main(asked: dict[str, Any]) -> None:
    """Read ``asked["steps"]`` steps from ``asked["begin"]`` on."""
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    number, count = asked["process"], asked["num_processes"]
    jax.distributed.initialize(asked["coordinator"], count, number)
    devices = np.array(jax.devices())
    dataset, options = open_dataset(asked["dataset"], root=asked["root"]), asked["options"]

    def divided(devices: Any, spec: PartitionSpec) -> NamedSharding:
        return NamedSharding(Mesh(devices, ("rows", "height")[: devices.ndim]), spec)

    by_rows = divided(devices, PartitionSpec("rows"))
    found = []
    batches = dataset.jax("train", sharding=by_rows, **asked["begin"], **options)
    for batch, _ in zip(batches, range(asked["steps"]), strict=False):
        assert batch.images.shape == (options["batch_size"], 24, 24, 3)
        assert batch.ordinals.size == options["batch_size"] // count
        for images, labels in zip(
            batch.images.addressable_shards, batch.labels.addressable_shards, strict=True
        ):
            assert images.index[0] == labels.index[0]
            digests = [hashlib.sha256(np.asarray(image).tobytes()).hexdigest() for image in images.data]
            found.append([batch.step, images.index[0].start, digests, np.asarray(labels.data).tolist()])

    refused = []
    dealt = divided(devices.reshape(count, 2).T.ravel(), PartitionSpec("rows"))
    copies = divided(devices, PartitionSpec())
    asked_wrongly = [
        (dealt, {}),
        (copies, {"last_batch": "partial"}),
        *((by_rows, each) for each in asked["wrong"]),
    ]
    for sharding, wrong in asked_wrongly:
        try:
            dataset.jax("train", sharding=sharding, **(options | wrong))
        except UsageError as error:
            refused.append(str(error))

    pairs = devices.reshape(count, 2)
    for sharding in (
        copies,
        divided(pairs, PartitionSpec("rows", "height")),
        divided(
            pairs.T, PartitionSpec("rows", "height")
        ),  # each process has all rows, and not all of their pixels
        None,
    ):
        batches = dataset.jax("train", sharding=sharding, **options)
        for batch, plain in zip(batches, dataset.batches("train", **options), strict=True):
            begin = 0 if sharding else number * len(plain) // count
            for array, wanted in ((batch.images, plain.images), (batch.labels, plain.labels)):
                for shard in array.addressable_shards:
                    assert np.array_equal(shard.data, wanted[begin : begin + len(array)][shard.index]), (
                        sharding
                    )
    print(json.dumps([found, refused]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
