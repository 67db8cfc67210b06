"""Rows of files that docs/images-in-rows.md reads, made from the photographs of the workplace.

python -m tests.documentation.rows_of_files parquet | arrays
"""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PHOTOS = Path("photos")


def parquet() -> None:
    """Write ``beans/train.parquet`` as Hugging Face writes images and labels."""
    Path("beans").mkdir()
    photographs = sorted(PHOTOS.glob("*/*.jpg"))
    rows = {
        "image": [{"bytes": photograph.read_bytes(), "path": None} for photograph in photographs],
        "label": [photograph.parent.name for photograph in photographs],
    }
    pq.write_table(pa.table(rows), "beans/train.parquet")


def arrays() -> None:
    """Write ``digits/`` with the four files of MNIST, of a few random digits."""
    Path("digits").mkdir()
    random = np.random.default_rng(1)
    for part, count in (("train", 60), ("t10k", 20)):
        images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for name, array in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            Path("digits", f"{name}.gz").write_bytes(gzip.compress(header + array.tobytes()))


if __name__ == "__main__":
    {"parquet": parquet, "arrays": arrays}[sys.argv[1]]()
