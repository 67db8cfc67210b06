"""Folders as TensorFlow Datasets lays them out, written by hand after its published formats."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shardmill.infra.format.records import frame
from tests.samples.images.photos import jpeg, write
from tests.samples.sources.rows import example

_FEATURES = "tensorflow_datasets.core.features"
CLASSES = ("hat", "cap", "coat")


def feature(kind: str, **content: Any) -> dict[str, Any]:
    """A feature of ``features.json``."""
    return {"pythonClassName": f"{_FEATURES}.{kind}", **content}


def tensor(dtype: str, *dimensions: int) -> dict[str, Any]:
    """A tensor of numbers or texts."""
    shape = {"dimensions": [str(one) for one in dimensions]} if dimensions else {}
    return feature("tensor_feature.Tensor", tensor={"shape": shape, "dtype": dtype, "encoding": "none"})


def sequence(inner: dict[str, Any], length: int = -1) -> dict[str, Any]:
    """A list of a feature."""
    return feature("sequence_feature.Sequence", sequence={"feature": inner, "length": str(length)})


def dictionary(features: Mapping[str, Any]) -> dict[str, Any]:
    """A dictionary of features, as the whole file is one."""
    return feature("features_dict.FeaturesDict", featuresDict={"features": dict(features)})


def class_label(count: int = len(CLASSES)) -> dict[str, Any]:
    """The number of a class."""
    return feature("class_label_feature.ClassLabel", classLabel={"numClasses": str(count)})


def image(channels: int = 3, dtype: str = "uint8") -> dict[str, Any]:
    """An image of any size."""
    shape = {"dimensions": ["-1", "-1", str(channels)]}
    return feature("image_feature.Image", image={"shape": shape, "dtype": dtype, "encodingFormat": "jpeg"})


TEXT = feature("text_feature.Text", text={})
BOX = feature("bounding_boxes.BBoxFeature", boundingBox={"shape": {"dimensions": ["4"]}, "dtype": "float32"})
PLAIN: Mapping[str, Any] = {"image": image(), "label": class_label()}


def plain_records(count: int, first: int = 0) -> list[bytes]:
    """Records of a JPEG and a label each, all different."""
    return [example(image=[jpeg(first + row)], label=[row % 3]) for row in range(count)]


def make_tfds(
    folder: Path,
    splits: Mapping[str, Sequence[Sequence[bytes]]],
    features: Mapping[str, Any] = PLAIN,
    *,
    names: Mapping[str, Sequence[str]] | None = None,
    info: Mapping[str, Any] | None = None,
) -> Path:
    """Write a version of a dataset called beans.

    Args:
        folder: to write to.
        splits: split -> the records of each of its shards.
        features: of ``features.json``.
        names: key of a class label -> names of its classes.
        info: replaces entries of ``dataset_info.json``.
    """
    described = []
    for split, shards in splits.items():
        for number, records in enumerate(shards):
            name = shard_name(split, number, len(shards))
            write(folder, {name: b"".join(map(frame, records))})
        lengths = [str(len(records)) for records in shards]
        described.append({"name": split, "numBytes": "1", "shardLengths": lengths})
    document = {
        "name": "beans",
        "version": "0.1.0",
        "fileFormat": "tfrecord",
        "splits": described,
        "supervisedKeys": {"tuple": {"items": [{"featureKey": "image"}, {"featureKey": "label"}]}},
        **(info or {}),
    }
    write(folder, {
        "dataset_info.json": json.dumps(document).encode(),
        "features.json": json.dumps(dictionary(features)).encode(),
    })  # fmt: skip
    for key, found in ({"label": CLASSES} if names is None else names).items():
        write(folder, {f"{key.replace('/', '-')}.labels.txt": "".join(f"{one}\n" for one in found).encode()})
    return folder


def shard_name(split: str, number: int = 0, count: int = 1) -> str:
    """The name of a shard, as TensorFlow Datasets gives it unless told otherwise."""
    return f"beans-{split}.tfrecord-{number:05d}-of-{count:05d}"
