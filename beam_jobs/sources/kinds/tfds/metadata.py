"""The metadata of TensorFlow Datasets: splits, files and numbers of records, and the features of records.

The formats are the messages ``DatasetInfo`` and ``Feature`` of ``tensorflow_datasets/core/proto`` as JSON, in
``dataset_info.json`` and ``features.json``. A feature of a dictionary has the key ``<dictionary>/<feature>``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from shardmill.beam_jobs.reasons import VANISHED
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.infra.errors import ConfigError, NotFoundError
from shardmill.infra.format.features import Dtype, Shape

INFO_FILE, FEATURES_FILE = "dataset_info.json", "features.json"
FILE_FORMATS = ("tfrecord", "array_record")

_SHARD_NAME = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"  # unless the metadata say another
_MAX_FILE_BYTES = 1 << 28
_MAX_SHARDS = 1 << 20


@dataclass(frozen=True)
class Shard:
    """A file of a dataset.

    Attributes:
        uri: relative to the source.
        split: its name in the dataset.
        num_records: that it should have.
    """

    uri: str
    split: str
    num_records: int


@dataclass(frozen=True)
class DatasetInfo:
    """The content of ``dataset_info.json``.

    Attributes:
        name: name and version, for people.
        file_format: one of FILE_FORMATS.
        shards: in the order of splits and numbers.
        label_key: feature that is to be predicted; None if it does not say.
    """

    name: str
    file_format: str
    shards: tuple[Shard, ...]
    label_key: str | None


def read_info(folder: SourceFolder) -> DatasetInfo:
    """Read ``dataset_info.json``.

    Raises:
        NotFoundError: it is not there. ConfigError: it is not of this format.
    """
    document = read_json(folder, INFO_FILE)
    name, version = str(document.get("name", "")), str(document.get("version", ""))
    file_format = str(document.get("fileFormat") or "tfrecord").lower()
    if file_format not in FILE_FORMATS:
        raise ConfigError(
            f"the files of {name} {version} are {file_format}, and {' and '.join(FILE_FORMATS)} are read",
            "let TensorFlow Datasets write it again: tfds build --file_format=tfrecord",
        )
    splits = document.get("splits")
    if not isinstance(splits, list) or not all(isinstance(split, dict) for split in splits):
        raise _wrong("it has no list of splits")
    names = [str(split.get("name", "")) for split in splits]
    if len(set(names)) < len(names) or not all(names):
        raise _wrong(f"its splits have no names of their own: {', '.join(names)}")
    shards = [
        shard
        for split, split_name in zip(splits, names, strict=True)
        for shard in _shards(split, split_name, name, file_format)
    ]
    if len({shard.uri for shard in shards}) < len(shards):
        raise _wrong("two shards have the same name")
    return DatasetInfo(f"{name} {version}".strip(), file_format, tuple(shards), _label_key(document))


def read_json(folder: SourceFolder, name: str) -> dict[str, Any]:
    """Read a file of metadata: an object of JSON.

    Raises:
        NotFoundError: it is not there. ConfigError: it is none.
    """
    try:
        document = json.loads(read_text(folder, name))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is no JSON: {error}", "let TensorFlow Datasets write it again") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{name} is no object of JSON", "let TensorFlow Datasets write it again")
    return document


def read_text(folder: SourceFolder, name: str) -> str:
    """Read a small text file of the source.

    Raises:
        NotFoundError: it is not there. ConfigError: it cannot be read, or is no text.
    """
    try:
        with folder.open_container(name) as file:
            data = file.read_at(min(file.size_bytes, _MAX_FILE_BYTES), 0)
        return data.decode("utf-8")
    except SourceFault as fault:
        if fault.reason == VANISHED:
            raise NotFoundError(
                f"the source {folder.uri} has no {name}",
                "give the folder of one version of a dataset of TensorFlow Datasets: mnist/3.0.1",
            ) from fault
        raise ConfigError(f"{name} cannot be read: {fault.message}") from fault
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not UTF-8: {error}") from error


def _shards(split: Mapping[str, Any], split_name: str, dataset: str, file_format: str) -> list[Shard]:
    template = str(split.get("filepathTemplate") or _SHARD_NAME)
    lengths = split.get("shardLengths", [])
    try:
        counts = [int(length) for length in lengths]
    except (ValueError, TypeError, OverflowError) as error:  # Infinity is the last
        raise _wrong(f"shardLengths of the split {split_name} are no numbers") from error
    if any(count < 0 for count in counts) or len(counts) > _MAX_SHARDS:
        raise _wrong(f"shardLengths of the split {split_name} are no numbers of records")
    if not counts and split.get("numBytes") not in (None, "0", 0):
        raise _wrong(f"the split {split_name} has no shardLengths")
    return [
        Shard(_file_name(template, dataset, split_name, file_format, at, len(counts)), split_name, count)
        for at, count in enumerate(counts)
    ]


def _file_name(template: str, dataset: str, split: str, file_format: str, at: int, count: int) -> str:
    """Fill in a template as TensorFlow Datasets does.

    Raises:
        ConfigError: it leads out of the folder.
    """
    values = {
        "DATASET": dataset, "SPLIT": split, "FILEFORMAT": file_format, "SHARD_INDEX": f"{at:05d}",
        "NUM_SHARDS": f"{count:05d}", "SHARD_X_OF_Y": f"{at:05d}-of-{count:05d}",
    }  # fmt: skip
    name = template
    for key, text in values.items():
        name = name.replace(f"{{{key}}}", text)
    if "/" in name or "\\" in name or "\0" in name or name in ("", ".", ".."):
        raise _wrong(f"a shard of the split {split} is called {name!r}, which is no name of a file here")
    return name


def _label_key(document: Mapping[str, Any]) -> str | None:
    """The second of the supervised keys, if it is a single feature."""
    value: Any = document
    for key in ("supervisedKeys", "tuple", "items"):
        value = value.get(key) if isinstance(value, dict) else None
    second = value[1] if isinstance(value, list) and len(value) > 1 else None
    named = second.get("featureKey") if isinstance(second, dict) else None
    return named if isinstance(named, str) else None


def _wrong(why: str) -> ConfigError:
    return ConfigError(f"{INFO_FILE}: {why}", "let TensorFlow Datasets write it again, or correct it")


MAX_VALUES = 4096  # most values of a feature of fixed length

_TEXTS = ("string", "str", "object", "bytes")
_IMAGE_TYPES = ("uint8", "uint16")  # of the samples of images that are files of their own
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
        num_classes: number of classes of a class label; None if it does not say.
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
        samples = str(_object(node, "image").get("dtype") or "uint8")
        return Leaf(key, "image", dtype="bytes", why="" if samples in _IMAGE_TYPES else samples)
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
