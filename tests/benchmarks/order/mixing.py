"""Compare how well orders and shuffle buffers mix classes, and the memory that each costs.

    python -m tests.benchmarks.order.mixing [--records 1000000] [--batch 256] [--record-bytes 28000]

A split of 100 classes of equal size lies in shards in three ways: *dataset sorted* (a shard has a class or
two, as where folders are packed one after the other, or where a version grew class by class), *shards sorted*
(each shard has all classes, one after the other), and *dealt* (each shard has all classes, in hashed order,
as ``prepare`` writes them).

For each batch the chi-square of its class counts is taken against the class shares of the split; *chi²* is
the mean over an epoch's batches over what a true permutation is expected to have, so 1 is as good as a true
permutation, and 2 means that the counts vary by √2 times as much. *classes* is how many of the 100 a batch
has. *memory* counts the images that must be held to mix (as stored), and what the order itself holds.

The shuffle buffers are simulated record by record as in ``tf.data``: fill, then give out a random one and put
the next in its place. *files shuffled* draws the order of the shards anew; *interleaved* reads sixteen of
them in turn.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import numpy.typing as npt

from shardmill.training.order import BlockSizes, TrainingOrder

Ints = npt.NDArray[np.int64]

MIB = 1 << 20
CLASSES = 100
SHARD_RECORDS = 4_600  # 128 MiB of records of 28 kB
BUFFERS = (1_000, 10_000, 100_000)
BLOCKS = (
    BlockSizes(32, 32),
    BlockSizes(32, 256),
    BlockSizes(32, 1024),
    BlockSizes(256, 32),
    BlockSizes(256, 128),
    BlockSizes(SHARD_RECORDS, 8),
)
CYCLE = 16


@dataclass(frozen=True)
class Way:
    """One way to mix: its name, the records of an epoch in order, and how many images it holds for it."""

    name: str
    epoch: Callable[[], Ints]
    held_records: int
    order_bytes: int = 0


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--record-bytes", type=int, default=28_000, help="of a stored image of 256 pixels")
    args = parser.parse_args()
    for layout, labels in layouts(args.records).items():
        print(f"\n{args.records:,} records, {CLASSES} classes, batch {args.batch}; {layout}\n")
        print("| order | chi² (1 = permutation) | worst batch | classes a batch | images held | memory MiB |")
        print("|---|---|---|---|---|---|")
        for way in ways(labels):
            ratio, worst, classes = mixing(labels[way.epoch()], args.batch)
            memory = (way.held_records * args.record_bytes + way.order_bytes) / MIB
            print(
                f"| {way.name} | {ratio:,.2f} | {worst:,.1f} | {classes:.1f} "
                f"| {way.held_records:,} | {memory:,.0f} |",
                flush=True,
            )


def layouts(num_records: int) -> dict[str, Ints]:
    """The label of each record by ordinal, for each way that the shards are sorted."""
    dataset = np.arange(num_records) * CLASSES // num_records
    shards = [np.arange(size) * CLASSES // size for size in shard_sizes(num_records)]
    chance = np.random.default_rng(4)
    return {
        "dataset sorted by class": dataset,
        "shards sorted by class": np.concatenate(shards),
        "shards dealt": np.concatenate([chance.permutation(shard) for shard in shards]),
    }


def shard_sizes(num_records: int) -> Ints:
    """Even shards."""
    num_shards = max(1, round(num_records / SHARD_RECORDS))
    return np.diff(np.arange(num_shards + 1) * num_records // num_shards)


def ways(labels: Ints) -> Iterator[Way]:
    """All that are compared."""
    size, shards = labels.size, shard_sizes(labels.size)
    everything = np.arange(size)
    yield Way("true permutation", lambda: np.random.default_rng(1).permutation(size), size, size * 8)
    by_record = TrainingOrder(labels, seed=0, global_batch_size=1)
    yield Way("by record", partial(by_record.ordinals, 0, everything), 0)
    for sizes in BLOCKS:
        order = TrainingOrder(labels, seed=0, global_batch_size=1, blocks=sizes, shard_sizes=shards)
        num_blocks = int((-(-shards // sizes.block_records)).sum())
        name = f"by block: {sizes.block_records:,} records, windows of {sizes.window_blocks:,}"
        held = min(size, sizes.block_records * sizes.window_blocks)
        yield Way(name, partial(order.ordinals, 0, everything), held, num_blocks * 48)
    for buffer in BUFFERS:
        for kind, stream in streams(shards).items():
            yield Way(f"buffer of {buffer:,}, {kind}", partial(shuffled, stream, buffer), min(buffer, size))


def streams(shards: Ints) -> dict[str, Ints]:
    """The order in which records come to a shuffle buffer."""
    starts = np.cumsum(shards) - shards
    of_shard = [np.arange(start, start + size) for start, size in zip(starts, shards, strict=True)]
    files = np.random.default_rng(2).permutation(shards.size).tolist()
    return {
        "in order": np.concatenate(of_shard),
        "files shuffled": np.concatenate([of_shard[file] for file in files]),
        f"files shuffled, {CYCLE} interleaved": interleaved([of_shard[file].tolist() for file in files]),
    }


def interleaved(files: list[list[int]]) -> Ints:
    """A record of each of ``CYCLE`` files in turn; the next file takes the place of one that ends."""
    waiting = iter(files)
    reading = [iter(file) for file in islice(waiting, CYCLE)]
    found: list[int] = []
    while reading:
        going_on = []
        for file in reading:
            record = next(file, None)
            if record is None:
                file = iter(next(waiting, ()))
                record = next(file, None)
            if record is not None:
                found.append(record)
                going_on.append(file)
        reading = going_on
    return np.array(found)


def shuffled(stream: Ints, buffer_size: int) -> Ints:
    """The order of records that leaves a shuffle buffer."""
    chance = np.random.default_rng(3)
    held = stream[:buffer_size].copy()
    found = np.empty_like(stream)
    places = chance.integers(0, held.size, stream.size)
    coming = stream[buffer_size:].tolist()
    for number, record in enumerate(coming):
        place = places[number]
        found[number] = held[place]
        held[place] = record
    found[len(coming) :] = chance.permutation(held)
    return found


def mixing(labels: Ints, batch: int) -> tuple[float, float, float]:
    """(mean chi-square of a batch, the greatest, mean number of classes); 1 is that of a permutation."""
    num_batches = labels.size // batch
    rows = np.repeat(np.arange(num_batches), batch)
    flat = rows * CLASSES + labels[: num_batches * batch]
    counts = np.bincount(flat, minlength=num_batches * CLASSES).reshape(num_batches, CLASSES)
    expected = batch * np.bincount(labels, minlength=CLASSES) / labels.size
    chi_square = ((counts - expected) ** 2 / expected).sum(axis=1)
    # Drawn without replacement: the variance is less by (N - B) / (N - 1).
    of_permutation = (CLASSES - 1) * (labels.size - batch) / (labels.size - 1)
    found = chi_square / of_permutation
    return float(found.mean()), float(found.max()), float((counts > 0).sum(axis=1).mean())


if __name__ == "__main__":
    main()
