"""Values inside a query: columns and constants with their kinds, and the columns that a query can name.

The same code computes with columns of a table in memory and with ``pyarrow.compute.Expression`` for scans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from shardmill.infra.errors import UsageError
from shardmill.infra.format.known_features import LABELS, NO_CLASS
from shardmill.infra.near_names import near_miss
from shardmill.infra.storage.locations import uri_of

Kind = Literal["number", "text", "truth", "time", "list", "nothing"]

SPLIT, LABEL, LABEL_NAME = "split", "label", "label_name"


@dataclass(frozen=True, slots=True)
class Value:
    """A part of a query.

    Attributes:
        kind: what it can be compared with.
        data: a ``ChunkedArray`` or an ``Expression``; of a constant a ``Scalar``.
        text: as it stands in the query, for errors.
        type: the Arrow type; of a constant the type of its scalar.
        constant: whether it is the same for all records.
        column: the column's name if it is nothing but a column.
    """

    kind: Kind
    data: Any
    text: str
    type: pa.DataType
    constant: bool = False
    column: str | None = None


def kind_of(kind: pa.DataType) -> Kind | None:
    """The kind of an Arrow type; None if queries do not know it."""
    if types.is_dictionary(kind):
        return kind_of(kind.value_type)
    if types.is_boolean(kind):
        return "truth"
    if types.is_integer(kind) or types.is_floating(kind):
        return "number"
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    if types.is_timestamp(kind) or types.is_date(kind):
        return "time"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return "list"
    return "nothing" if types.is_null(kind) else None


class Columns:
    """The columns that a query can name: those of the index, ``split`` and ``label_name``.

    Attributes:
        schema: columns and types of the index.
        classes: class names, as text.
        used: names of the index columns that were asked for.
    """

    def __init__(self, schema: pa.Schema, classes: Sequence[str]) -> None:
        self.schema = schema
        self.classes = [uri_of(name) for name in classes]
        self.used: set[str] = set()

    @property
    def have_one_class(self) -> bool:
        """Whether each record has one class."""
        return bool(self.classes) and LABELS not in self.schema.names

    def names(self) -> list[str]:
        """All names."""
        return [SPLIT, LABEL_NAME, *self.schema.names]

    def get(self, name: str) -> Value:
        """Return a column.

        Raises:
            UsageError: there is none of this name, or queries do not know its type.
        """
        if name == SPLIT:
            return Value("text", self._split(), name, pa.string(), column=name)
        if name == LABEL_NAME:
            return self.label_name(name)
        if name not in self.schema.names:
            remedy = f"for a text write {name!r} in quotes; {near_miss(name, self.names()) or ''}"
            raise UsageError(f"the query names a column {name!r}, which there is not", remedy)
        found = self.schema.field(name).type
        kind = kind_of(found)
        if kind is None:
            raise UsageError(f"the column {name!r} holds {found}, which queries cannot compare")
        self.used.add(name)
        data = self._column(name)
        if types.is_dictionary(found):
            found = found.value_type
            data = data.cast(found)
        return Value(kind, data, name, found, column=name)

    def label_name(self, text: str) -> Value:
        """Return the class name of each record; ``text`` is how the query calls it."""
        if not self.have_one_class:
            raise UsageError(
                f"{text!r} asks for the class of an image, but the version has no classes of single images",
                f"ask for a member: 'name' in {LABELS}" if LABELS in self.schema.names else None,
            )
        self.used.add(LABEL)
        return Value("text", self._label_name(), text, pa.string(), column=LABEL_NAME)

    def check_class(self, name: str) -> None:
        """Check that a class of this name exists.

        Raises:
            UsageError: there is none.
        """
        if name not in self.classes:
            raise UsageError(
                f"the query names a class {name!r}, which there is not", near_miss(name, self.classes)
            )

    def operand(self, value: Value) -> Any:
        """Return the data of a value for a function of Arrow with several arguments."""
        return pc.scalar(value.data) if value.constant else value.data

    def _split(self) -> Any:
        return pc.field(SPLIT)

    def _column(self, name: str) -> Any:
        return pc.field(name)

    def _label_name(self) -> Any:
        return pc.choose(_single(pc.field(LABEL)), *self.classes)


def _single(labels: Any) -> Any:
    """The labels, null for records that have no single class."""
    return pc.if_else(pc.not_equal(labels, NO_CLASS), labels, pa.scalar(None, pa.int32()))


class TableColumns(Columns):
    """The columns of an index table in memory, all of one split."""

    def __init__(self, table: pa.Table, split: str, classes: Sequence[str]) -> None:
        super().__init__(table.schema, classes)
        self._table = table
        self._name = split

    def operand(self, value: Value) -> Any:
        """Return the data of a value for a function of Arrow with several arguments."""
        return value.data

    def _split(self) -> Any:
        return pa.chunked_array([pa.repeat(self._name, self._table.num_rows)])

    def _column(self, name: str) -> Any:
        return self._table[name]

    def _label_name(self) -> Any:
        return pc.take(pa.array(self.classes, pa.string()), _single(self._table[LABEL]))
