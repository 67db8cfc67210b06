"""``tf.train.Example`` messages without TensorFlow.

The message types are declared here in a descriptor pool of their own (field numbers from TensorFlow's
``example.proto`` and ``feature.proto``), so that they never clash with the types of an imported TensorFlow.

TensorFlow declares ``Features.feature`` as a map, which on the wire is a repeated key-value message. It is
declared as the latter here: then the order of the features is ours, and the bytes do not depend on how a
protobuf release happens to order maps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from infra.errors import CorruptDataError

_FIELD = descriptor_pb2.FieldDescriptorProto


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """One example as it is stored.

    Attributes:
        id: first 16 hexadecimal digits of the SHA-256 of the source bytes.
        image: the encoded image.
        label: index into the manifest's classes.
        label_name: name of the class.
        height, width, channels: of the stored image (pixels).
    """

    id: str
    image: bytes
    label: int
    label_name: str
    height: int
    width: int
    channels: int

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


def build_example(record: ImageRecord) -> bytes:
    """The serialised ``tf.train.Example`` of a record. The same record gives the same bytes."""
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
    add_int("label", record.label)
    # Names of folders need not be UTF-8; a shard carries the bytes they had.
    add_bytes("label_name", record.label_name.encode("utf-8", "surrogateescape"))
    add_int("width", record.width)
    return bytes(example.SerializeToString())


def parse_example(serialized: bytes) -> ImageRecord:
    """The record in a serialised ``tf.train.Example``.

    Raises:
        CorruptDataError: it is no Example, or a feature is missing.
    """
    try:
        feature = {entry.key: entry.value for entry in _Example.FromString(serialized).features.feature}
        return ImageRecord(
            id=feature["id"].bytes_list.value[0].decode("ascii"),
            image=feature["image"].bytes_list.value[0],
            label=feature["label"].int64_list.value[0],
            label_name=feature["label_name"].bytes_list.value[0].decode("utf-8", "surrogateescape"),
            height=feature["height"].int64_list.value[0],
            width=feature["width"].int64_list.value[0],
            channels=feature["channels"].int64_list.value[0],
        )
    except (message.DecodeError, KeyError, IndexError, UnicodeDecodeError) as error:
        raise CorruptDataError(f"not an example of this format: {error}") from error
