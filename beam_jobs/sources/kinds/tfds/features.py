"""``features.json`` of TensorFlow Datasets: the features that its records have.

The format is the message ``Feature`` of ``tensorflow_datasets/core/proto/feature.proto`` as JSON. Features of
a dictionary have the key ``<dictionary>/<feature>`` in the records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from shardmill.beam_jobs.sources.kinds.tfds.metadata import FEATURES_FILE
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.features import Dtype, Shape

MAX_VALUES = 4096  # of a feature of fixed length

_TEXTS = ("string", "str", "object", "bytes")
_WHOLE = ("bool", "bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_FLOATS = ("float16", "float32", "float64", "bfloat16")

Role = Literal["image", "class", "values", "unusable"]


@dataclass(frozen=True)
class Leaf:
    """A feature that is no dictionary.

    Attributes:
        key: in the records.
        role: image: an encoded image; class: a number of a class; values: numbers, texts or bytes; unusable:
            none of them.
        dtype, shape, length, is_text: see shardmill.infra.format.features.Feature; of a class as it is
        stored.
        is_list: a sequence.
        is_box: four edges relative to the image, or a list of them.
        channels: of an image; None if it does not say.
        num_classes: of a class; None if it does not say.
        why: it is unusable.
    """

    key: str
    role: Role
    dtype: Dtype = "int64"
    shape: Shape = "scalar"
    length: int | None = None
    is_text: bool = False
    is_list: bool = False
    is_box: bool = False
    channels: int | None = None
    num_classes: int | None = None
    why: str = ""

    @property
    def names_file(self) -> str:
        """The file with the names of its classes."""
        return f"{self.key.replace('/', '-')}.labels.txt"


def leaves_of(document: Mapping[str, Any]) -> list[Leaf]:
    """Return all features of ``features.json``, sorted by key.

    Raises:
        ConfigError: it is not of this format.
    """
    if "featuresDict" not in document:
        raise ConfigError(
            f"{FEATURES_FILE} is not of the format of TensorFlow Datasets since 4.4",
            "let it write the dataset again, or read the files alone: --source-kind tfrecord",
        )
    try:
        leaves = list(_leaves("", document, None))
    except RecursionError as error:
        raise ConfigError(
            f"{FEATURES_FILE} has too many dictionaries within each other",
            "let TensorFlow Datasets write it again, or read the files alone: --source-kind tfrecord",
        ) from error
    return sorted(map(_of_bearable_length, leaves), key=lambda leaf: leaf.key)


def _of_bearable_length(leaf: Leaf) -> Leaf:
    if leaf.length is None or leaf.length <= MAX_VALUES:
        return leaf
    why = f"it has {leaf.length:,} values, and at most {MAX_VALUES:,} are taken"
    return Leaf(leaf.key, "unusable", why=why)


def _leaves(key: str, node: Mapping[str, Any], length: int | None) -> Iterator[Leaf]:
    """Yield the leaves of a feature; ``length`` is that of the sequence that it is in, -1 for any."""
    if "featuresDict" in node:
        for name, inner in _object(_object(node, "featuresDict"), "features").items():
            if isinstance(inner, dict):
                yield from _leaves(f"{key}/{name}" if key else str(name), inner, length)
        return
    if "sequence" in node:
        if length is not None:
            yield Leaf(key, "unusable", why="it is a list of lists")
            return
        sequence = _object(node, "sequence")
        yield from _leaves(key, _object(sequence, "feature"), _whole(sequence.get("length", -1)))
        return
    yield _leaf(key, node, length)


def _leaf(key: str, node: Mapping[str, Any], length: int | None) -> Leaf:
    kind = str(node.get("pythonClassName", "")).rpartition(".")[2]
    if "image" in node and kind == "Image":
        if length is not None:
            return Leaf(key, "unusable", why="it is a list of images")
        dimensions = _dimensions(_object(node, "image"))
        channels = dimensions[-1] if len(dimensions) == 3 and dimensions[-1] > 0 else None
        return Leaf(key, "image", dtype="bytes", channels=channels)
    if "classLabel" in node:
        shape, count = _shape([], length)
        number = _whole(_object(node, "classLabel").get("numClasses", -1))
        return Leaf(
            key, "class", "int64", shape, count,
            is_list=length is not None, num_classes=number if number > 0 else None,
        )  # fmt: skip
    if "text" in node:
        shape, count = _shape([], length)
        return Leaf(key, "values", "bytes", shape, count, is_text=True, is_list=length is not None)
    if "boundingBox" in node:
        shape, count = _shape([4], length)
        return Leaf(key, "values", "float32", shape, count, is_list=length is not None, is_box=True)
    if "tensor" in node:
        return _tensor(key, _object(node, "tensor"), length)
    return Leaf(key, "unusable", why=f"features of the type {kind or 'that it has'} are not read")


def _tensor(key: str, tensor: Mapping[str, Any], length: int | None) -> Leaf:
    name = str(tensor.get("dtype", ""))
    dtype: Dtype | None = (
        "int64" if name in _WHOLE else "float32" if name in _FLOATS else "bytes" if name in _TEXTS else None
    )
    if dtype is None:
        return Leaf(key, "unusable", why=f"its values are {name or 'of no type'}")
    if tensor.get("encoding", "none") not in ("none", "NONE", "", None):
        return Leaf(key, "unusable", why="its values are compressed")
    shape, count = _shape(_dimensions(tensor), length)
    return Leaf(key, "values", dtype, shape, count, is_list=shape != "scalar")


def _shape(dimensions: list[int], length: int | None) -> tuple[Shape, int | None]:
    """Return shape and length of the flat values of a tensor, which may be in a sequence."""
    if length is not None:
        dimensions = [length, *dimensions]
    if not dimensions:
        return "scalar", None
    if any(one < 1 for one in dimensions):
        return "variable", None
    return "fixed", math.prod(dimensions)


def _dimensions(node: Mapping[str, Any]) -> list[int]:
    found = _object(node, "shape").get("dimensions", [])
    return [_whole(one) for one in found] if isinstance(found, list) else []


def _object(node: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = node.get(name)
    return value if isinstance(value, dict) else {}


def _whole(value: object) -> int:
    """A number that may be written as text; -1 if it is none."""
    try:
        return int(str(value))
    except ValueError:
        return -1
