"""LitData: its chunks of stored JPEGs through ``StreamingDataset`` and ``StreamingDataLoader``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from litdata import StreamingDataLoader, StreamingDataset, optimize

from tests.benchmarks.inputs.photographs import Photograph, photographs
from tests.benchmarks.read.peers.reading import BATCH, WORKERS, endless, main, random_example


class Photographs(StreamingDataset):  # type: ignore[misc]
    """Examples out of chunks."""

    def __getitem__(self, at: Any) -> tuple[Any, int]:
        row = super().__getitem__(at)
        return torch.from_numpy(random_example(row["image"])), row["label"]


def row(file: Photograph) -> dict[str, Any]:
    return {"image": Path(file[0]).read_bytes(), "label": file[1]}


def prepare(work: Path, out: Path) -> None:
    files = photographs(work / "jpegs")
    # As many examples in each chunk, so that workers share them evenly and no batch is cut.
    optimize(fn=row, inputs=files, output_dir=str(out), chunk_size=BATCH, num_workers=1)


def batches(work: Path, out: Path) -> Iterator[Any]:
    dataset = Photographs(str(out), shuffle=True, drop_last=True)
    return endless(
        StreamingDataLoader(dataset, batch_size=BATCH, num_workers=WORKERS, persistent_workers=True)
    )


if __name__ == "__main__":
    main({"litdata": batches}, prepare)
