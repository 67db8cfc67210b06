"""Files that docs/images-in-rows.md and docs/import.md read, made from the photographs of the workplace.

python -m tests.documentation.rows_of_files parquet | arrays | tfds | webdataset
"""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.samples.sources.archives import make_tar
from tests.samples.sources.rows import example
from tests.samples.sources.tfds_folders import PLAIN, class_label, make_tfds

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


def tfds() -> None:
    """Write ``beans/0.1.0`` as TensorFlow Datasets writes a version."""
    photographs = sorted(PHOTOS.glob("*/*.jpg"))
    classes = sorted({photograph.parent.name for photograph in photographs})
    records = [
        example(image=[photograph.read_bytes()], label=[classes.index(photograph.parent.name)])
        for photograph in photographs
    ]
    features = {**PLAIN, "label": class_label(len(classes))}
    splits = {"train": [records[1::2]], "test": [records[::2]]}
    make_tfds(Path("beans/0.1.0"), splits, features, names={"label": classes})


def webdataset() -> None:
    """Write ``shards/photos-train-000000.tar`` and one for validation, as WebDataset names its members."""
    photographs = sorted(PHOTOS.glob("*/*.jpg"))
    classes = sorted({photograph.parent.name for photograph in photographs})
    for part, some in (("train", photographs[1::2]), ("val", photographs[::2])):
        members = {}
        for number, photograph in enumerate(some):
            members[f"{number:06d}.jpg"] = photograph.read_bytes()
            members[f"{number:06d}.cls"] = str(classes.index(photograph.parent.name)).encode()
        make_tar(Path(f"shards/photos-{part}-000000.tar"), members)


if __name__ == "__main__":
    makers = {"parquet": parquet, "arrays": arrays, "tfds": tfds, "webdataset": webdataset}
    makers[sys.argv[1]]()
