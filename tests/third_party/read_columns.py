"""Reads columns of the train split of an export by its own library; run in the environment of that library.

python read_columns.py FORM FOLDER COLUMN...: pickles {record id: {column: list of values}} to FOLDER.pickle.
A mask is (shape, bytes of its pixels).
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = tuple[str, dict[str, Any]]


def _list(value: Any) -> list[Any]:
    """Values as a flat list, whatever holds them."""
    if hasattr(value, "ravel"):
        value = value.ravel().tolist()
    value = value if isinstance(value, list) else [value]
    return [one.decode() if isinstance(one, bytes) else one for one in value]


def _mask(data: bytes) -> tuple[tuple[int, ...], bytes]:
    import io

    from PIL import Image

    picture = Image.open(io.BytesIO(data))
    return picture.size[::-1], picture.tobytes()


def read_tfds(folder: Path, columns: list[str]) -> Iterator[Row]:
    """TensorFlow Datasets; objects/bbox is the key bbox of its dictionary objects."""
    import tensorflow_datasets as tfds

    for row in tfds.as_numpy(tfds.builder_from_directory(str(folder)).as_dataset(split="train")):
        found = {}
        for name in columns:
            value = row
            for part in name.split("/"):
                value = value[part]
            found[name] = _list(value)
        yield row["id"].decode(), found


def read_huggingface(folder: Path, columns: list[str]) -> Iterator[Row]:
    """Hugging Face datasets; a mask comes as a picture."""
    import datasets

    cache = str(folder.with_name("cache"))
    for row in datasets.load_dataset(str(folder), split="train", cache_dir=cache):
        found = {name: _list(row[name]) for name in columns if name != "mask"}
        if "mask" in columns:
            found["mask"] = (row["mask"].size[::-1], row["mask"].tobytes())
        yield row["id"], found


def read_webdataset(folder: Path, columns: list[str]) -> Iterator[Row]:
    """WebDataset: columns in the .json, a mask in a file of its own."""
    import json

    import webdataset

    shards = sorted(str(path) for path in folder.glob("train-*.tar"))
    for sample in webdataset.WebDataset(shards, shardshuffle=False):
        row = json.loads(sample["json"])
        found = {name: _list(row[name]) for name in columns if name != "mask"}
        if "mask" in columns:
            found["mask"] = _mask(sample["seg.png"])
        yield row["id"], found


def read_parquet(folder: Path, columns: list[str]) -> Iterator[Row]:
    """Plain pyarrow."""
    import pyarrow.dataset

    files = sorted(str(path) for path in folder.glob("train-*.parquet"))
    for row in pyarrow.dataset.dataset(files).to_table(columns=["id", *columns]).to_pylist():
        found = {name: _mask(row[name]) if name == "mask" else _list(row[name]) for name in columns}
        yield row["id"], found


def read_array_record(folder: Path, columns: list[str]) -> Iterator[Row]:
    """Grain, and the examples of the package tfrecord."""
    import grain
    from tfrecord.example_pb2 import Example

    files = sorted(str(path) for path in folder.glob("train-*.arrayrecord"))
    for data in grain.sources.ArrayRecordDataSource(files):
        features = Example.FromString(data).features.feature
        found: dict[str, Any] = {}
        for name in columns:
            feature = features["mask/encoded" if name == "mask" else name]
            kind = feature.WhichOneof("kind")
            values = [] if kind is None else list(getattr(feature, kind).value)
            found[name] = _mask(values[0]) if name == "mask" else _list(values)
        yield features["id"].bytes_list.value[0].decode(), found


READERS = {
    "tfds": read_tfds,
    "huggingface": read_huggingface,
    "webdataset": read_webdataset,
    "parquet": read_parquet,
    "array_record": read_array_record,
}

if __name__ == "__main__":
    form, place, *asked = sys.argv[1:]
    made = dict(READERS[form](Path(place), asked))
    Path(f"{place}.pickle").write_bytes(pickle.dumps(made))
