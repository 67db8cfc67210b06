"""The steps of a run as each reader of a dataset gives them, also by several ranks one after the other.

``python -m tests.samples.training.steps_by_reader JSON`` answers a list of questions with ``{reader: [step,
...]}`` each. A process of its own reads, because TensorFlow and PyTorch are in different environments, and
JAX warns of every later fork of a process that uses it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from shardmill import Dataset, open_dataset

Step = list[Any]  # digest of the pixels, labels, weights as shares of the step
Arrays = tuple[Any, Any, Any]  # images uint8 [b, S, S, C], labels, weights
Begin = dict[str, int]  # first_epoch, step, epochs, rank and num_ranks


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to read.

    Attributes:
        root: the folder of the datasets.
        dataset: the dataset, or several.
        steps_per_epoch: the steps of an epoch.
        options: arguments of every reader.
        opened: arguments of ``open_dataset``.
        ranks, bounds: ranks[0] ranks read the steps below bounds[0], then ranks[1] those below bounds[1], ...
    """

    root: str
    dataset: str | list[str]
    steps_per_epoch: int
    options: dict[str, Any]
    opened: dict[str, Any] = field(default_factory=dict)
    ranks: tuple[int, ...] = (1, 2, 3)
    bounds: tuple[int, ...] = (2, 5, 8)


def steps_of(reader: str, wanted: Wanted) -> list[Step]:
    """Read all steps; each rank begins where the ranks before it ended."""
    dataset = open_dataset(wanted.dataset, root=wanted.root, **wanted.opened)
    read, found = READERS[reader], []
    for ranks, stop in zip(wanted.ranks, wanted.bounds, strict=True):
        epoch, step = divmod(len(found), wanted.steps_per_epoch)
        begin = {"first_epoch": epoch, "step": step, "epochs": -(-stop // wanted.steps_per_epoch) - epoch}
        num_ranks = 1 if reader == "tf" else ranks  # a process of TensorFlow reads whole steps
        parts = [
            read(dataset, wanted.options, begin | {"rank": rank, "num_ranks": num_ranks})
            for rank in range(num_ranks)
        ]
        for of_ranks in islice(zip(*parts, strict=True), stop - len(found)):
            images, labels, weights = (np.concatenate(each) for each in zip(*of_ranks, strict=True))
            shares = np.round(weights / weights.sum(), 6)
            pixels = hashlib.sha256(images.dtype.name.encode() + images.tobytes()).hexdigest()
            found.append([pixels, labels.tolist(), shares.tolist()])
    return found


def _tf(dataset: Dataset, options: Any, begin: Begin) -> Iterator[Arrays]:
    epochs = {name: begin[name] for name in ("first_epoch", "epochs")}
    for parts in dataset.tf("train", **epochs, **options).skip(begin["step"]).as_numpy_iterator():
        images, labels, *weights = parts
        yield images, labels, *(weights or [np.ones(len(images))])


def _batches(dataset: Dataset, options: Any, begin: Begin) -> Iterator[Arrays]:
    for batch in dataset.batches("train", **begin, **options):
        yield batch.images, batch.labels, batch.weights


def _jax(dataset: Dataset, options: Any, begin: Begin) -> Iterator[Arrays]:
    for images, labels, weights, *_ in dataset.jax("train", **begin, **options):
        yield np.asarray(images), np.asarray(labels), np.asarray(weights)


def _grain(dataset: Dataset, options: Any, begin: Begin) -> Iterator[Arrays]:
    import grain

    read = dataset.grain("train", **begin, **options)
    loader = grain.DataLoader(
        data_source=read.source,
        sampler=read.sampler,
        operations=[grain.transforms.Batch(read.batch_size)],
        shard_options=grain.sharding.NoSharding(),
        read_options=grain.ReadOptions(num_threads=1, prefetch_buffer_size=2),
    )
    for element in loader:
        yield element["image"], element["label"], element["weight"]


def _torch(dataset: Dataset, options: Any, begin: Begin) -> Iterator[Arrays]:
    rank = {name: begin[name] for name in ("rank", "num_ranks")}
    loader = dataset.torch("train", num_workers=1, **rank, **options)
    loader.seek(begin["first_epoch"], begin["step"])
    for _ in range(begin["epochs"]):
        for batch in loader:
            images = batch.images.permute(0, 2, 3, 1).contiguous()
            yield images.numpy(), batch.labels.numpy(), batch.weights.numpy()


READERS = {"tf": _tf, "batches": _batches, "jax": _jax, "grain": _grain, "torch": _torch}


def main() -> None:
    """Answer the questions."""
    answers = []
    for asked in json.loads(sys.argv[1]):
        readers = asked.pop("readers")
        answers.append({reader: steps_of(reader, Wanted(**asked)) for reader in readers})
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
