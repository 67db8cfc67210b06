"""``tf.train.Example`` messages without TensorFlow.

The message types are declared here in a descriptor pool of their own (field numbers from TensorFlow's
``example.proto`` and ``feature.proto``), so that they never clash with the types of an imported TensorFlow.

TensorFlow declares ``Features.feature`` as a map, which on the wire is a repeated key-value message. It is
declared as the latter here: then the order of the features is ours, and the bytes do not depend on how a
protobuf release happens to order maps. ``parser_code`` is for readers without this project.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from shardmill.infra.errors import CorruptDataError
from shardmill.infra.format.contract import FEATURES, Manifest
from shardmill.infra.format.features import Dtype, Feature, Features, FeatureValues
from shardmill.infra.format.known_features import MASK, NO_CLASS

_FIELD = descriptor_pb2.FieldDescriptorProto
_BROKEN = (message.DecodeError, KeyError, IndexError, UnicodeDecodeError)
_NO_FEATURES: Final[Features] = {}
_LISTS: Final[Mapping[str, Dtype]] = {"bytes_list": "bytes", "float_list": "float32", "int64_list": "int64"}
_LIST_OF: Final[Mapping[Dtype, str]] = {dtype: name for name, dtype in _LISTS.items()}

Values = Sequence[bytes] | Sequence[int] | Sequence[float]


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """One example as it is stored.

    Attributes:
        id: first 16 hexadecimal digits of the SHA-256 of the source bytes.
        image: the encoded image.
        label: index into the manifest's classes; -1 if the record has no single class.
        label_name: name of the class; empty if it has none.
        height, width, channels: of the stored image (pixels).
        mask: the encoded mask (``shardmill.infra.format.known_features``); None if the record has none.
    """

    id: str
    image: bytes
    label: int
    label_name: str
    height: int
    width: int
    channels: int
    mask: bytes | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width, channels."""
        return self.height, self.width, self.channels


def _declare() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="shardmill/example.proto", package="tensorflow", syntax="proto3"
    )

    def add_field(
        owner: descriptor_pb2.DescriptorProto, name: str, number: int, kind: Any, *, repeated: bool = False
    ) -> Any:
        label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
        field: Any = owner.field.add(name=name, number=number, label=label)
        if isinstance(kind, str):
            field.type = _FIELD.TYPE_MESSAGE
            field.type_name = f".tensorflow.{kind}"
        else:
            field.type = kind
        return field

    for list_name, scalar in (
        ("BytesList", _FIELD.TYPE_BYTES),
        ("FloatList", _FIELD.TYPE_FLOAT),
        ("Int64List", _FIELD.TYPE_INT64),
    ):
        add_field(file.message_type.add(name=list_name), "value", 1, scalar, repeated=True)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, kind) in enumerate(
        (("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")), start=1
    ):
        add_field(feature, name, number, kind).oneof_index = 0
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    add_field(entry, "key", 1, _FIELD.TYPE_STRING)
    add_field(entry, "value", 2, "Feature")
    add_field(features, "feature", 1, "Features.FeatureEntry", repeated=True)
    add_field(file.message_type.add(name="Example"), "features", 1, "Features")

    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


_Example = _declare()


def build_example(record: ImageRecord, features: Features = _NO_FEATURES) -> bytes:
    """The serialised ``tf.train.Example`` of a record. The same record gives the same bytes.

    Args:
        record: the image and its label.
        features: further features, by name; stored behind the others, sorted by name.
    """
    example = _Example()
    entries = example.features.feature

    def add_bytes(key: str, value: bytes) -> None:
        entries.add(key=key).value.bytes_list.value.append(value)

    def add_int(key: str, value: int) -> None:
        entries.add(key=key).value.int64_list.value.append(value)

    add_int("channels", record.channels)
    add_int("height", record.height)
    add_bytes("id", record.id.encode("ascii"))
    add_bytes("image", record.image)
    if record.label != NO_CLASS:
        add_int("label", record.label)
        # Names of folders need not be UTF-8; a shard carries the bytes they had.
        add_bytes("label_name", record.label_name.encode("utf-8", "surrogateescape"))
    if record.mask is not None:
        add_bytes(MASK, record.mask)
    add_int("width", record.width)
    for name, found in sorted(features.items()):
        value = entries.add(key=name).value
        stored = getattr(value, _LIST_OF[found.dtype])
        stored.SetInParent()  # so that an empty list has a type too
        stored.value.extend(found.values)
    return bytes(example.SerializeToString())


def parse_example(serialized: bytes) -> ImageRecord:
    """The record in a serialised ``tf.train.Example``, without its further features.

    Raises:
        CorruptDataError: it is no Example, or a feature is missing.
    """
    try:
        return _record(_entries(serialized))
    except _BROKEN as error:
        raise CorruptDataError(f"not an example of this format: {error}") from error


def parse_features(serialized: bytes) -> dict[str, Values]:
    """The values of all features of any ``tf.train.Example``, by name; empty where a feature has no type.

    Raises:
        CorruptDataError: it is no Example.
    """
    try:
        entries = _entries(serialized)
    except message.DecodeError as error:
        raise CorruptDataError(f"not a tf.train.Example: {error}") from error
    found: dict[str, Values] = {}
    for name, value in entries.items():
        kind = value.WhichOneof("kind")
        found[name] = getattr(value, kind).value if kind is not None else ()
    return found


def parse_whole_example(serialized: bytes) -> tuple[ImageRecord, dict[str, FeatureValues]]:
    """The record in a serialised ``tf.train.Example``, and its further features by name.

    Raises:
        CorruptDataError: it is no Example, or a feature is missing or has no type.
    """
    features = {}
    try:
        entries = _entries(serialized)
        for name in entries.keys() - FEATURES.keys() - {MASK}:
            kind = entries[name].WhichOneof("kind")
            features[name] = FeatureValues(_LISTS[kind], list(getattr(entries[name], kind).value))
        return _record(entries), features
    except _BROKEN as error:
        raise CorruptDataError(f"not an example of this format: {error}") from error


def _entries(serialized: bytes) -> dict[str, Any]:
    return {entry.key: entry.value for entry in _Example.FromString(serialized).features.feature}


def _record(feature: Mapping[str, Any]) -> ImageRecord:
    has_class = "label" in feature
    return ImageRecord(
        id=feature["id"].bytes_list.value[0].decode("ascii"),
        image=feature["image"].bytes_list.value[0],
        label=feature["label"].int64_list.value[0] if has_class else NO_CLASS,
        label_name=feature["label_name"].bytes_list.value[0].decode("utf-8", "surrogateescape")
        if has_class
        else "",
        height=feature["height"].int64_list.value[0],
        width=feature["width"].int64_list.value[0],
        channels=feature["channels"].int64_list.value[0],
        mask=feature[MASK].bytes_list.value[0] if MASK in feature else None,
    )


_TYPES = {"int64": "tf.int64", "float32": "tf.float32", "bytes": "tf.string"}
_MISSING = {"int64": "-(2**63)", "float32": 'float("nan")', "bytes": 'b""'}


def parser_code(manifest: Manifest) -> str:
    """Return a module of Python: features for ``tf.io.parse_example``, and two functions that use them."""
    names = [name for name in (*FEATURES, MASK) if name in manifest.features]
    is_text = {name: name == MASK or FEATURES[name].startswith("bytes") for name in names}
    kinds = {name: "tf.string" if text else "tf.int64" for name, text in is_text.items()}
    lines = [f'    "{name}": tf.io.FixedLenFeature([], {kind}),' for name, kind in kinds.items()]
    lines += [f'    "{feature.name}": {_specification(feature)},' for feature in manifest.extra_features]
    compression = "GZIP" if manifest.container == "gzip" else ""
    ref = f"{manifest.dataset}@{manifest.version}"
    return f'''"""Parse the records of {ref}, made by `shardmill show --parser`."""

import tensorflow as tf

FEATURES = {{
{chr(10).join(lines)}
}}


def parse(serialized):
    """Parse one record: a tensor for each feature, ragged for lists of any length."""
    return tf.io.parse_single_example(serialized, FEATURES)


def read(files):
    """Read the records of shards as a tf.data.Dataset of dicts."""
    return tf.data.TFRecordDataset(files, compression_type="{compression}").map(parse)
'''


def _specification(feature: Feature) -> str:
    kind = _TYPES[feature.dtype]
    if feature.shape == "variable":
        return f"tf.io.RaggedFeature({kind})"
    missing = _MISSING[feature.dtype]
    length = feature.length
    if length is None:
        return f"tf.io.FixedLenFeature([], {kind}, default_value={missing})"
    return f"tf.io.FixedLenFeature([{length}], {kind}, default_value=[{missing}] * {length})"
