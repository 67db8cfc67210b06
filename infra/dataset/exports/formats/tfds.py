"""TFRecord for TensorFlow Datasets, NVIDIA DALI and others: uncompressed shards with their metadata.

::

    train-00000-of-00012.tfrecord    a shard, uncompressed: a link to the version's own shard, or a copy
    train-00000-of-00012.idx         the places of its records: one line "offset length" (bytes) for each
    dataset_info.json, features.json, label.labels.txt          for TensorFlow Datasets

Several labels are ``labels``, a sequence of class labels; boxes are ``objects``, as its own detection data
sets have them; numbers are ``targets``. Masks are refused.

Uncompressed shards on this machine become links, unless they are to be copied.

TensorFlow Datasets' ``builder_from_directory`` reads the two JSON files. The formats are as in
``tensorflow_datasets/core/proto/`` (``dataset_info.proto``, ``feature.proto``) as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.dataset.exports.formats import Format
from shardmill.infra.dataset.exports.parts import Batch, Part, Plan
from shardmill.infra.dataset.exports.target import FileMade, PartFiles
from shardmill.infra.errors import UsageError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import (
    BOXES,
    CROWDS,
    LABELS,
    OBJECT_FEATURES,
    OBJECT_LABELS,
    TARGETS,
    WORDS,
)
from shardmill.infra.format.records import frame
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json


class _TensorFlowDatasets(Format):
    def check(self, plan: Plan) -> None:
        version = plan.version
        if version.manifest.label_kind == "mask":
            raise UsageError(
                f"{version.ref} has {WORDS['mask']}: the metadata of TensorFlow Datasets cannot say so",
                "export them in another format, such as --format parquet",
            )

    def links(self, plan: Plan, destination: Storage) -> bool:
        version = plan.version
        plain = version.manifest.container == "none" and version.view is None
        return plain and version.storage.is_local and destination.is_local and not plan.copy

    def write(self, plan: Plan, part: Part, batches: Iterator[Batch], files: PartFiles) -> int:
        spans = _linked(plan, part, files) if files.are_links else _written(part, batches, files)
        files.write(f"{part.stem}.idx", "".join(f"{at} {length}\n" for at, length in spans).encode("ascii"))
        return len(spans)

    def describe(self, plan: Plan, parts: Sequence[FileMade]) -> dict[str, bytes]:
        sizes = {file.path: file.num_bytes for file in parts}
        return _metadata_files(plan, {part.stem: sizes[f"{part.stem}.tfrecord"] for part in plan.parts})


def _linked(plan: Plan, part: Part, files: PartFiles) -> list[tuple[int, int]]:
    """Link to a shard; return (offset, length) of its records (bytes)."""
    to = plan.version.storage.local_path(part.shard.path)
    assert to is not None
    files.link(f"{part.stem}.tfrecord", to.resolve(), part.shard.num_bytes, part.shard.sha256)
    index = plan.version.index(part.shard)
    return list(zip(index["offset_bytes"].to_pylist(), index["length_bytes"].to_pylist(), strict=True))


def _written(part: Part, batches: Iterator[Batch], files: PartFiles) -> list[tuple[int, int]]:
    """Write a shard uncompressed; return (offset, length) of its records (bytes)."""
    spans, offset = [], 0
    with files.create(f"{part.stem}.tfrecord") as stream:
        for batch in batches:
            for payload in batch.payloads:
                framed = frame(payload)
                stream.write(framed)
                spans.append((offset, len(framed)))
                offset += len(framed)
    return spans


FORMAT = _TensorFlowDatasets()

_FEATURES = "tensorflow_datasets.core.features"
_SHARD_NAMES = "{SPLIT}-{SHARD_X_OF_Y}.tfrecord"
_DECODED = ("jpeg", "png")  # encodings that its Image feature decodes


def _metadata_files(plan: Plan, num_bytes: Mapping[str, int]) -> dict[str, bytes]:
    """Return file name -> content of the metadata files of an export.

    Args:
        plan: plan of the export.
        num_bytes: stem of a part -> size of its file.
    """
    manifest = plan.version.manifest
    names = "".join(f"{_one_line(name)}\n" for name in manifest.classes).encode()
    key = _key_of_classes(manifest)
    return {
        "dataset_info.json": _json(_dataset_info(plan, num_bytes)),
        "features.json": _json(_features(manifest, _complete_features(plan))),
        **({} if key is None else {f"{key.replace('/', '-')}.labels.txt": names}),
    }


def _has_objects(manifest: Manifest) -> bool:
    return BOXES in {feature.name for feature in manifest.extra_features}


def _key_of_classes(manifest: Manifest) -> str | None:
    """Return the feature that holds numbers of classes; None if labels are no classes."""
    if manifest.label_kind == "multi":
        return OBJECT_LABELS if _has_objects(manifest) else LABELS
    return "label" if manifest.label_kind == "class" else None


def _complete_features(plan: Plan) -> list[Feature]:
    """Return the further features that every record has: TensorFlow Datasets fails where one is missing."""
    features = {feature.name: feature for feature in plan.version.manifest.extra_features}
    for part in plan.parts:
        if not features:
            break
        rows = plan.version.rows(part.shard, sorted(features))
        for name in sorted(features):
            column = rows[name] if name in rows.column_names else None
            is_list = column is not None and pa.types.is_list(column.type)
            if column is None or column.null_count or (is_list and pc.list_flatten(column).null_count):
                del features[name]
    return list(features.values())


def _dataset_info(plan: Plan, num_bytes: Mapping[str, int]) -> dict[str, Any]:
    manifest = plan.version.manifest
    # 64-bit numbers are strings in the JSON of protocol buffers.
    splits = [
        {
            "name": split,
            "filepathTemplate": _SHARD_NAMES,
            "numBytes": str(sum(num_bytes[part.stem] for part in parts)),
            "shardLengths": [str(part.num_examples) for part in parts],
        }
        for split, parts in plan.splits.items()
    ]
    label = TARGETS if manifest.label_kind == "targets" else _key_of_classes(manifest)
    pair = [{"featureKey": "image"}, {"featureKey": label}]
    is_one = label is not None and label != OBJECT_LABELS
    supervised = {"supervisedKeys": {"tuple": {"items": pair}}} if is_one else {}
    return {
        "name": manifest.dataset,
        "version": f"{manifest.version}.0.0",
        "description": f"{plan.version.ref}, prepared by Shardmill from {manifest.source}",
        "fileFormat": "tfrecord",
        "splits": splits,
        **supervised,
    }


def _features(manifest: Manifest, further: Sequence[Feature]) -> dict[str, Any]:
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
    features = {name: found for name, found in features.items() if name in manifest.features}
    if _has_objects(manifest):
        # Its sequences have the keys objects/bbox and so on. ``labels`` says nothing more.
        own = {LABELS, *(feature.name for feature in OBJECT_FEATURES)}
        features |= {feature.name: _further(feature) for feature in further if feature.name not in own}
        features[BOXES.partition("/")[0]] = _sequence(_dictionary({
            BOXES.partition("/")[2]: _feature(
                "bounding_boxes.BBoxFeature", boundingBox={"shape": {"dimensions": ["4"]}, "dtype": "float32"}
            ),
            OBJECT_LABELS.partition("/")[2]: label,
            CROWDS.partition("/")[2]: number,
        }))  # fmt: skip
        return _dictionary(features)
    features |= {feature.name: _further(feature) for feature in further}
    if manifest.label_kind == "multi":
        features[LABELS] = _sequence(label)
    return _dictionary(features)


def _sequence(inner: dict[str, Any]) -> dict[str, Any]:
    return _feature("sequence_feature.Sequence", sequence={"feature": inner, "length": "-1"})


def _dictionary(features: Mapping[str, Any]) -> dict[str, Any]:
    return _feature("features_dict.FeaturesDict", featuresDict={"features": dict(features)})


def _image(encoding: str) -> dict[str, Any]:
    if encoding not in _DECODED:  # handed out as it is stored, for the user to decode
        return _feature("tensor_feature.Tensor", tensor=_tensor("string"))
    shape = {"dimensions": ["-1", "-1", "3"]}
    return _feature(
        "image_feature.Image", image={"shape": shape, "dtype": "uint8", "encodingFormat": encoding}
    )


def _further(feature: Feature) -> dict[str, Any]:
    """Describe a further feature; lists of any length have the dimension -1."""
    dtype = "string" if feature.dtype == "bytes" else feature.dtype
    if feature.shape == "scalar":
        if feature.is_text:
            return _feature("text_feature.Text", text={})
        return _feature("scalar.Scalar", tensor=_tensor(dtype))
    length = "-1" if feature.length is None else str(feature.length)
    tensor = {"shape": {"dimensions": [length]}, "dtype": dtype, "encoding": "none"}
    return _feature("tensor_feature.Tensor", tensor=tensor)


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
    return (dump_json(value, indent=2, ensure_ascii=True) + "\n").encode("ascii")
