"""Further features of the records: columns of the source that are stored beside the image.

A feature holds numbers or bytes: one value a record, always the same number of them, or any number. In a
record it is a feature of the ``tf.train.Example``, in an index a column of the same name.

A record may lack a feature: the index is null there, and the example has no such key. Readers return
``MISSING`` in its place: once for a scalar, ``length`` times for a fixed length, and no value for a variable
length. A value that is null within a list is stored as ``MISSING``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from shardmill.infra.settings import Settings

if TYPE_CHECKING:  # the settings of a command need no tables
    import pyarrow as pa

Dtype = Literal["int64", "float32", "bytes"]
Shape = Literal["scalar", "fixed", "variable"]
Scalar = int | float | bytes

# No value of int64 is out of use; this one is what NumPy and pandas take for "not a time".
MISSING: Final[Mapping[Dtype, Scalar]] = {"int64": -(1 << 63), "float32": math.nan, "bytes": b""}

_METADATA = b"shardmill.feature"


class Feature(Settings):
    """A further feature of all records of a version.

    Attributes:
        name: key in the examples, and column of the indexes.
        dtype: type of its values.
        shape: scalar: one value; fixed: ``length`` values; variable: any number.
        length: number of values, if it is fixed.
        is_text: the bytes are UTF-8.
        column: the column of the source that it comes from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    dtype: Dtype
    shape: Shape = "scalar"
    length: int | None = Field(default=None, ge=1)
    is_text: bool = False
    column: str | None = None

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
