"""PyTorch's ``DataLoader`` over a folder of JPEG files: decoded by a function, TorchCodec or Pillow."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

from tests.benchmarks.inputs.photographs import photographs
from tests.benchmarks.read.peers.reading import BATCH, RATIO, SCALE, SIZE, WORKERS, main, random_example

_EPOCHS = 10_000  # in one: starting the workers anew for each is nothing that the reader need suffer


def load(dataset: Any) -> Iterator[Any]:
    """Batches of a map-style dataset of (image, label), shuffled without end."""
    # That worker processes exist is all it warns of.
    warnings.filterwarnings("ignore", message=".*worker", category=UserWarning)
    loader: Any = DataLoader(
        dataset,
        batch_size=BATCH,
        sampler=RandomSampler(dataset, num_samples=_EPOCHS * len(dataset)),
        num_workers=WORKERS,
        persistent_workers=True,
        prefetch_factor=2,
        drop_last=True,
    )
    return iter(loader)


class Files(Dataset[Any]):
    """The stored JPEGs as files."""

    def __init__(self, source: Path, example: Callable[[bytes], Any]) -> None:
        self._files = photographs(source)
        self._example = example

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        path, label = self._files[number]
        return self._example(Path(path).read_bytes()), label


def function(work: Path, out: Path) -> Iterator[Any]:
    return load(Files(work / "jpegs", lambda data: torch.from_numpy(random_example(data))))


def torchcodec(work: Path, out: Path) -> Iterator[Any]:
    """With torchvision's transforms of tensors of bytes, channels last as the decoder gives them."""
    from torchcodec.decoders import decode_jpeg
    from torchvision.transforms import v2

    steps = v2.Compose([v2.RandomResizedCrop(SIZE, SCALE, RATIO), v2.RandomHorizontalFlip()])

    def example(data: bytes) -> Any:
        return steps(decode_jpeg(data)).permute(1, 2, 0)

    return load(Files(work / "jpegs", example))


def pillow(work: Path, out: Path) -> Iterator[Any]:
    from torchvision import datasets, transforms

    def as_uint8(image: Any) -> Any:
        return torch.from_numpy(np.array(image))

    steps = [
        transforms.RandomResizedCrop(SIZE, SCALE, RATIO),
        transforms.RandomHorizontalFlip(),
        transforms.Lambda(as_uint8),
    ]
    return load(datasets.ImageFolder(str(work / "jpegs"), transforms.Compose(steps)))


if __name__ == "__main__":
    main({"function": function, "torchcodec": torchcodec, "pillow": pillow})
