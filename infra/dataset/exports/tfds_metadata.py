"""Make the metadata files of TensorFlow Datasets for a version: ``dataset_info.json``, ``features.json``.

Its ``builder_from_directory`` reads these two, and the class names from ``label.labels.txt``. The formats are
as in ``tensorflow_datasets/core/proto/`` (``dataset_info.proto``, ``feature.proto``) as JSON.
Pure functions of the manifest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from infra.format.contract import Manifest, Shard

_FEATURES = "tensorflow_datasets.core.features"
_SHARD_NAMES = "{SPLIT}-{SHARD_X_OF_Y}.tfrecord"
_DECODED = ("jpeg", "png")  # encodings that its Image feature decodes


def metadata_files(manifest: Manifest, shards: Mapping[str, Sequence[Shard]]) -> dict[str, bytes]:
    """Return file name -> content of the metadata files of a version.

    Args:
        manifest: of the version.
        shards: split -> its shards, in the order in which their files are numbered.
    """
    return {
        "dataset_info.json": _json(_dataset_info(manifest, shards)),
        "features.json": _json(_features(manifest)),
        "label.labels.txt": "".join(f"{_one_line(name)}\n" for name in manifest.classes).encode(),
    }


def _dataset_info(manifest: Manifest, shards: Mapping[str, Sequence[Shard]]) -> dict[str, Any]:
    # 64-bit numbers are strings in the JSON of protocol buffers.
    splits = [
        {
            "name": split,
            "filepathTemplate": _SHARD_NAMES,
            "numBytes": str(sum(shard.num_bytes for shard in of_split)),
            "shardLengths": [str(shard.num_examples) for shard in of_split],
        }
        for split, of_split in shards.items()
    ]
    pair = [{"featureKey": "image"}, {"featureKey": "label"}]
    return {
        "name": manifest.dataset,
        "version": f"{manifest.version}.0.0",
        "description": f"{manifest.dataset}@{manifest.version}, prepared by Shardmill from {manifest.source}",
        "fileFormat": "tfrecord",
        "splits": splits,
        "supervisedKeys": {"tuple": {"items": pair}},
    }


def _features(manifest: Manifest) -> dict[str, Any]:
    number = _feature("scalar.Scalar", tensor=_tensor("int64"))
    text = _feature("text_feature.Text", text={})
    label = _feature("class_label_feature.ClassLabel", classLabel={"numClasses": str(len(manifest.classes))})
    features = {
        "channels": number,
        "height": number,
        "id": text,
        "image": _image(manifest.image_encoding),
        "label": label,
        "label_name": text,
        "width": number,
    }
    return _feature("features_dict.FeaturesDict", featuresDict={"features": features})


def _image(encoding: str) -> dict[str, Any]:
    if encoding not in _DECODED:  # handed out as it is stored, for the user to decode
        return _feature("tensor_feature.Tensor", tensor=_tensor("string"))
    shape = {"dimensions": ["-1", "-1", "3"]}
    return _feature(
        "image_feature.Image", image={"shape": shape, "dtype": "uint8", "encodingFormat": encoding}
    )


def _tensor(dtype: str) -> dict[str, Any]:
    return {"shape": {}, "dtype": dtype, "encoding": "none"}


def _feature(kind: str, **content: Any) -> dict[str, Any]:
    return {"pythonClassName": f"{_FEATURES}.{kind}", **content}


def _one_line(name: str) -> str:
    """A class name as a line of UTF-8: folder names may hold anything but ``/``."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in name
    )


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=True) + "\n").encode("ascii")
