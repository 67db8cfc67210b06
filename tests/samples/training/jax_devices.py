"""Reads batches onto four devices of JAX and prints facts about them as JSON, for ``test_jax_batches``.

``python -m tests.samples.training.jax_devices ROOT`` needs ``XLA_FLAGS``. JAX warns of every later fork of a
process that it was loaded in, so no test loads it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from shardmill import Dataset, open_dataset
from shardmill.infra.errors import UsageError

OPTIONS: dict[str, Any] = {"batch_size": 8, "image_size": 16, "seed": 3}


def refusal(function: Callable[[], Any]) -> str:
    """The message of the error that a call ends with."""
    try:
        function()
    except UsageError as error:
        return str(error)
    raise AssertionError("nothing was refused")


def check_places(dataset: Dataset) -> None:
    """Arrays lie where the argument says, and each device has its rows."""
    devices = jax.devices()
    assert len(devices) == 4
    wanted = list(dataset.batches("train", **OPTIONS))
    mesh = jax.make_mesh((4,), ("data",))
    by_rows = NamedSharding(mesh, PartitionSpec("data"))
    by_both = NamedSharding(jax.make_mesh((2, 2), ("data", "height")), PartitionSpec("data", "height"))
    for sharding in (None, devices[2], SingleDeviceSharding(devices[1]), by_rows, by_both):
        batches = dataset.jax("train", sharding=sharding, **OPTIONS)
        assert len(batches) == len(wanted)
        kept = list(batches)  # nothing is written over while it is held
        for batch, plain in zip(kept, wanted, strict=True):
            images, labels, weights, sizes, *_ = batch
            for array, other in zip(
                (images, labels, weights, sizes, batch.ordinals, batch.positions),
                (plain.images, plain.labels, plain.weights, plain.sizes, plain.ordinals, plain.positions),
                strict=True,
            ):
                assert array.dtype == other.dtype
                assert np.array_equal(array, other)
            assert (batch.epoch, batch.step) == (plain.epoch, plain.step)
            where = {device.id for device in images.devices()}
            assert where == {None: {0}, devices[2]: {2}, by_rows: {0, 1, 2, 3}, by_both: {0, 1, 2, 3}}.get(
                sharding, {1}
            )
            if sharding is by_rows:
                assert {shard.data.shape for shard in images.addressable_shards} == {(2, 16, 16, 3)}
                assert {shard.data.shape for shard in labels.addressable_shards} == {(2,)}
            if sharding is by_both:
                assert {shard.data.shape for shard in images.addressable_shards} == {(4, 8, 16, 3)}
                assert {shard.data.shape for shard in sizes.addressable_shards} == {(4, 2)}
    # Uncommitted arrays go with any other; those of a device stay there.
    batch = next(iter(dataset.jax("train", **OPTIONS)))
    assert (batch.labels + jax.device_put(np.int32(1), devices[3])).devices() == {devices[3]}
    with jax.default_device(devices[1]):
        moved = dataset.jax("train", **OPTIONS)
    assert next(iter(moved)).images.devices() == {devices[1]}
    with jax.set_mesh(mesh):
        assert np.array_equal(next(iter(dataset.jax("train", **OPTIONS))).images, wanted[0].images)


def check_ahead(dataset: Dataset) -> None:
    """The next two batches go to the devices while the caller works on one."""
    batches = dataset.jax("train", **OPTIONS)
    placed: list[int] = []

    def noted(batch: Any) -> Any:
        made = batches.placing(batch)
        placed.append(batch.step)
        return made

    steps = iter(replace(batches, placing=noted))
    next(steps)
    deadline = time.monotonic() + 60
    while len(placed) < 3:
        assert time.monotonic() < deadline, placed
        time.sleep(0.01)
    steps.close()
    traced = []

    @jax.jit
    def mean(images: Any, weights: Any) -> Any:
        traced.append(images.shape)
        return jnp.sum(images.astype(jnp.float32).mean((1, 2, 3)) * weights)

    for batch in dataset.jax("test", **OPTIONS):
        assert np.isfinite(mean(batch.images, batch.weights))
    assert traced == [(8, 16, 16, 3)], "one shape, one compilation"


def refusals(dataset: Dataset) -> dict[str, str]:
    """Return what is said of each wrong argument."""
    by_rows = NamedSharding(jax.make_mesh((4,), ("data",)), PartitionSpec("data"))
    asked: dict[str, dict[str, Any]] = {
        "no sharding": {"sharding": "data"},
        "uneven": {"batch_size": 6, "sharding": by_rows},
        "uneven rows": {"batch_size": 12, "num_ranks": 2, "rank": 0, "sharding": by_rows},
        "partial": {"last_batch": "partial", "sharding": by_rows},
        "rank": {"rank": 3, "num_ranks": 3},
    }
    return {
        name: refusal(lambda each=each: dataset.jax("train", **(OPTIONS | each)))  # type: ignore[misc]
        for name, each in asked.items()
    }


def main() -> None:
    """Check, and print what can only be compared elsewhere."""
    dataset = open_dataset("set", root=sys.argv[1])
    check_places(dataset)
    check_ahead(dataset)
    padded = [batch.weights.tolist() for batch in dataset.jax("test", batch_size=5, image_size=16)]
    partial = dataset.jax("test", batch_size=5, image_size=16, last_batch="partial")
    whole = next(iter(dataset.jax("test", batch_size=2, image_size=None)))
    loaded = sorted({"tensorflow", "keras", "torch", "prefect", "apache_beam"} & set(sys.modules))
    facts = {
        "padded": padded,
        "partial": [len(batch.images) for batch in partial],
        "whole": [[*whole.images.shape], whole.sizes.tolist()],
        "repr": repr(dataset.jax("train", **OPTIONS)),
        "refusals": refusals(dataset),
        "loaded": loaded,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
