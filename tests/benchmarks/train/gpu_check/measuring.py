"""What every part of the GPU check is told, and the loop that measures it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardmill import Dataset, open_dataset
from shardmill.training.config import AugmentSettings
from shardmill.training.reading.example_spec import ExampleOptions
from tests.benchmarks.measuring.process_tree import memory_of_tree
from tests.benchmarks.measuring.reader_process import cpu_of_tree
from tests.benchmarks.train.gpu_check.bundle import DATASET
from tests.benchmarks.train.gpu_check.rows import Row

if TYPE_CHECKING:
    from shardmill.training.torch.data import TorchLoader

IMAGE_SIZE = 224
AUGMENT = AugmentSettings(scale=(0.08, 1.0))
ENDLESS = 1_000_000  # epochs


class Skipped(Exception):
    """A part cannot be measured on this machine; says why."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a part is told.

    Attributes:
        root: folder of the datasets.
        device: "cuda" or "cpu", which is tried with few and small images.
        seconds: time of the part, start and imports included.
    """

    root: Path
    device: str
    seconds: float

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU is measured."""
        return self.device == "cuda"

    @property
    def batch_size(self) -> int:
        """Images of a step."""
        return 256 if self.on_gpu else 4

    def window(self, parts: int) -> float:
        """Return the seconds of a measurement that takes one of so many parts of the time."""
        return self.seconds / parts if self.on_gpu else min(self.seconds / parts, 0.5)

    def open(self) -> Dataset:
        """Open the dataset of the bundle."""
        return open_dataset(DATASET, root=self.root)

    def loader(self) -> TorchLoader:
        """Open endless batches for PyTorch, as training reads them."""
        return self.open().torch("train", pin_memory=self.on_gpu, **self.examples)

    @property
    def examples(self) -> ExampleOptions:
        """Random windows of training, mirrored."""
        return {"batch_size": self.batch_size, "image_size": IMAGE_SIZE, "augment": AUGMENT}


def measured(
    what: str,
    batches: Iterator[Any],
    use: Callable[[Any], int],
    seconds: float,
    *,
    finish: Callable[[], None] = lambda: None,
    warm: int | None = None,
) -> Row:
    """Take batches for so many seconds.

    Args:
        what: name of the row.
        batches: endless.
        use: does something with a batch, and returns the number of its images.
        seconds: time to measure.
        finish: waits for the device.
        warm: batches that a training takes before. None: nothing is trained, so waiting is all there is.
    """
    for _ in range(3 if warm is None else warm):
        use(next(batches))
    finish()
    cpu, begun = cpu_of_tree(os.getpid()), time.perf_counter()
    images, steps, waited = 0, 0, 0.0
    while time.perf_counter() - begun < seconds:
        asked = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - asked
        images += use(batch)
        steps += 1
    finish()
    elapsed, cpu = time.perf_counter() - begun, cpu_of_tree(os.getpid()) - cpu
    return Row(
        what,
        images / elapsed,
        wait_ms=None if warm is None else waited / steps * 1e3,
        cpu_micros=cpu / images * 1e6,
        host_bytes=memory_of_tree(os.getpid())["Pss:"],
    )
