"""Further features of the records: columns of the source that are stored beside the image.

A feature holds numbers or bytes: one value a record, always the same number of them, or any number. In a
record it is a feature of the ``tf.train.Example``, in an index a column of the same name.

A record may lack a feature: the index is null there, and the example has no such key. Readers return
``MISSING`` in its place: once for a scalar, ``length`` times for a fixed length, and no value for a variable
length. A value that is null within a list is stored as ``MISSING``.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from shardmill.infra.readable import first_of
from shardmill.infra.settings import Settings

if TYPE_CHECKING:  # the settings of a command need no tables
    import pyarrow as pa

Dtype = Literal["int64", "float32", "bytes"]
Shape = Literal["scalar", "fixed", "variable"]
Scalar = int | float | bytes

# No value of int64 is out of use; this one is what NumPy and pandas take for "not a time".
MISSING: Final[Mapping[Dtype, Scalar]] = {"int64": -(1 << 63), "float32": math.nan, "bytes": b""}

_METADATA = b"shardmill.feature"
_NAMES = 5  # of key points that are shown


class KeyPoints(Settings):
    """The key points of objects.

    Attributes:
        names: name of each of K points, each once.
        skeleton: pairs of numbers of points, counted from 0, that pictures join.
        partners: number of the point that each becomes in a mirrored image, itself where it lies in the
            middle: K numbers; None if nothing tells them, and then images cannot be mirrored.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    names: tuple[str, ...] = Field(min_length=1)
    skeleton: tuple[tuple[int, int], ...] = ()
    partners: tuple[int, ...] | None = None

    @model_validator(mode="after")
    def _numbers_are_of_points(self) -> Self:
        count = len(self.names)
        if len(set(self.names)) < count:
            raise ValueError("two key points have the same name")
        if not all(0 <= point < count for pair in self.skeleton for point in pair):
            raise ValueError(f"the skeleton joins points other than 0 to {count - 1}")
        partners = self.partners
        if partners is not None and (
            sorted(partners) != list(range(count)) or any(partners[partners[at]] != at for at in range(count))
        ):
            raise ValueError("the partners of key points are no pairs")
        return self


_SIDE = re.compile(r"left|right", re.IGNORECASE)
_OTHER_SIDE = {
    "left": "right",
    "right": "left",
    "Left": "Right",
    "Right": "Left",
    "LEFT": "RIGHT",
    "RIGHT": "LEFT",
}


def partners_by_name(names: Sequence[str]) -> tuple[int, ...] | None:
    """Return the partner of each key point in a mirrored image, as ``left`` and ``right`` in names tell it.

    Returns:
        Numbers of points, itself for a point without side; None if no name has a side, or one has a side and
        no counterpart.
    """
    number = {name: at for at, name in enumerate(names)}
    found = []
    for at, name in enumerate(names):
        sides = list(_SIDE.finditer(name))
        swapped = _SIDE.sub(lambda side: _OTHER_SIDE.get(side[0], side[0]), name)
        # "right" within a longer word, such as "bright", is no side.
        if (partner := number.get(swapped)) is None and any(
            not name[: side.start()][-1:].isalpha() or side[0][0].isupper() for side in sides
        ):
            return None
        found.append(at if partner is None else partner)
    return tuple(found) if found != list(range(len(found))) else None


class Feature(Settings):
    """A further feature of all records of a version.

    Attributes:
        name: key in the examples, and column of the indexes.
        dtype: type of its values.
        shape: scalar: one value; fixed: ``length`` values; variable: any number.
        length: number of values, if it is fixed.
        is_text: the bytes are UTF-8.
        column: the column of the source that it comes from.
        points: what the key points are, if it holds key points.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    dtype: Dtype
    shape: Shape = "scalar"
    length: int | None = Field(default=None, ge=1)
    is_text: bool = False
    column: str | None = None
    points: KeyPoints | None = None

    @model_serializer(mode="wrap")
    def _without_points(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out points that are none, so that older releases read the feature."""
        document: dict[str, Any] = serialize(self)
        if self.points is None:
            del document["points"]
        return document

    @model_validator(mode="after")
    def _has_a_length_if_fixed(self) -> Self:
        if (self.shape == "fixed") != (self.length is not None):
            raise ValueError("length is given exactly for features of fixed length")
        return self

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of its column in tables and indexes."""
        import pyarrow as pa

        types = {"int64": pa.int64(), "float32": pa.float32(), "bytes": pa.binary()}
        value = pa.string() if self.is_text else types[self.dtype]
        return value if self.shape == "scalar" else pa.list_(value)

    def arrow_field(self, prefix: str = "") -> pa.Field:
        """Return its column, which carries its description."""
        import pyarrow as pa

        return pa.field(prefix + self.name, self.arrow_type, metadata={_METADATA: self.model_dump_json()})

    def __str__(self) -> str:
        count = {"scalar": "", "fixed": f" [{self.length}]", "variable": " [any number]"}[self.shape]
        if self.points is not None:
            names = first_of(self.points.names, _NAMES)
            count = f" [{len(self.points.names)} key points an object: {names}]"
        return f"{'text' if self.is_text else self.dtype}{count}"


def features_in(schema: pa.Schema) -> list[Feature]:
    """Return the features whose columns ``Feature.arrow_field`` made, in order."""
    described = [(field.metadata or {}).get(_METADATA) for field in schema]
    return [Feature.model_validate_json(text) for text in described if text is not None]


@dataclass(frozen=True, slots=True)
class FeatureValues:
    """The values of one feature of one record."""

    dtype: Dtype
    values: list[Any]

    def is_same(self, other: FeatureValues | None) -> bool:
        """Tell whether both are stored as the same bytes; NaN equals itself."""
        if other is None or (self.dtype, len(self.values)) != (other.dtype, len(other.values)):
            return False
        if self.dtype != "float32":
            return self.values == other.values
        return _float_bytes(self.values) == _float_bytes(other.values)


Features = Mapping[str, FeatureValues]  # name -> values; of a record only those that it has


def are_same(one: Features, other: Features) -> bool:
    """Tell whether two records have the same features with the same values."""
    return one.keys() == other.keys() and all(values.is_same(other[name]) for name, values in one.items())


def feature_values(features: Iterable[Feature], row: Mapping[str, Any]) -> dict[str, FeatureValues]:
    """Return the features of a row of an index, as they are in its record.

    Args:
        features: further features of the version.
        row: feature -> value, list of values, or None, as Arrow gives them.
    """
    found = {}
    for feature in features:
        value = row.get(feature.name)
        if value is None:
            continue
        values = [value] if feature.shape == "scalar" else value
        if feature.is_text:
            values = [text.encode() for text in values]
        found[feature.name] = FeatureValues(feature.dtype, values)
    return found


def _float_bytes(values: list[float]) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)
