"""Writes a dataset with TensorFlow Datasets itself; run in its environment.

python write_tfds.py FOLDER tfrecord|array_record: writes FOLDER/animals/1.0.0, and pickles what the library
reads of it to FOLDER/read.pickle: (split, class, image bytes, caption, tags, score, height, boxes).
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

CLASSES = ["red fox", "owl", "bär"]


def example(number: int) -> dict[str, Any]:
    """An example of a JPEG, a class, and some more."""
    random = np.random.default_rng(number)
    blocks = np.kron(random.integers(0, 256, (6, 8, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    path = Path(sys.argv[1]) / f"{number}.jpg"
    path.write_bytes(tf.io.encode_jpeg(blocks, quality=90).numpy())
    return {
        "image": str(path),
        "label": CLASSES[number % 3],
        "caption": f"größe {number}",
        "tags": ["a", "b"][: number % 3],
        "score": number / 4,
        "place": {"height": number},
        "objects": [{"bbox": tfds.features.BBox(0.125, 0.25, 0.5, 0.75)}] * (number % 3),
    }


def main() -> None:
    """Write and read."""
    features = tfds.features.FeaturesDict({
        "image": tfds.features.Image(encoding_format="jpeg"),
        "label": tfds.features.ClassLabel(names=CLASSES),
        "caption": tfds.features.Text(),
        "tags": tfds.features.Sequence(tfds.features.Text()),
        "score": np.float32,
        "place": {"height": np.int64},
        "objects": tfds.features.Sequence({"bbox": tfds.features.BBoxFeature()}),
    })  # fmt: skip
    counts = {"train": range(30), "validation": range(30, 36), "test": range(36, 40)}
    builder = tfds.dataset_builders.store_as_tfds_dataset(
        name="animals",
        version="1.0.0",
        data_dir=sys.argv[1],
        features=features,
        split_datasets={
            split: [(number, example(number)) for number in some] for split, some in counts.items()
        },
        file_format=sys.argv[2],
    )
    found = []
    skip = {"image": tfds.decode.SkipDecoding()}
    for split in counts:
        if sys.argv[2] == "tfrecord":
            rows = tfds.as_numpy(builder.as_dataset(split=split, decoders=skip))
        else:
            rows = builder.as_data_source(split=split, decoders=skip)
        for row in rows:
            tags = [tag.decode() for tag in row["tags"]]
            boxes = [float(edge) for box in row["objects"]["bbox"] for edge in box]
            values = (row["caption"].decode(), tags, float(row["score"]), int(row["place"]["height"]), boxes)
            found.append((split, CLASSES[row["label"]], bytes(row["image"]), *values))
    (Path(sys.argv[1]) / "read.pickle").write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main()
