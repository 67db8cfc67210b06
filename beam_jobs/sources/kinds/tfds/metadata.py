"""``dataset_info.json`` of TensorFlow Datasets: its splits, their files, and how many records each file has.

The format is the message ``DatasetInfo`` of ``tensorflow_datasets/core/proto/dataset_info.proto`` as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardmill.beam_jobs.schemas import VANISHED
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.infra.errors import ConfigError, NotFoundError

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
        file_format: of FILE_FORMATS.
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
