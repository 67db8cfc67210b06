"""Hugging Face datasets: a memory-mapped Arrow dataset with a transform, through PyTorch's ``DataLoader``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # before it is imported: everything is here

import datasets
import torch

from tests.benchmarks.inputs.photographs import photographs
from tests.benchmarks.read.peers.reading import main, random_example
from tests.benchmarks.read.peers.torch import load


def prepare(work: Path, out: Path) -> None:
    files = photographs(work / "jpegs")
    columns = {
        "image": [Path(path).read_bytes() for path, _ in files],
        "label": [label for _, label in files],
    }
    features = datasets.Features({"image": datasets.Value("binary"), "label": datasets.Value("int64")})
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(str(out))


class Pairs(torch.utils.data.Dataset[Any]):
    """(image, label); whole batches are fetched at once, as the library can."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitems__(self, numbers: list[int]) -> list[tuple[Any, int]]:
        found = self._rows[numbers]
        return list(zip(found["image"], found["label"], strict=True))


def examples(rows: dict[str, Any]) -> dict[str, Any]:
    return {**rows, "image": [torch.from_numpy(random_example(data)) for data in rows["image"]]}


def batches(work: Path, out: Path) -> Iterator[Any]:
    return load(Pairs(datasets.load_from_disk(str(out)).with_transform(examples)))


if __name__ == "__main__":
    main({"huggingface": batches}, prepare)
