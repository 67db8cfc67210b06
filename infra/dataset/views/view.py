"""A view: the records of a version for which a query is true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from shardmill.infra.dataset.views.conditions import condition
from shardmill.infra.dataset.views.syntax import canonical_text, parse_query
from shardmill.infra.dataset.views.values import Columns, TableColumns


@dataclass(frozen=True, slots=True)
class View:
    """The query of a view.

    Attributes:
        query: its text, the same for queries that differ only in blanks, quotes and parentheses.
        fields: the columns of the index that it reads. An older shard may lack one: its values are missing.
    """

    query: str
    fields: pa.Schema

    def select(self, table: pa.Table, split: str, classes: Sequence[str]) -> pa.Table:
        """Return the rows of an index that the query selects, in their order.

        Args:
            table: rows of one shard's index.
            split: the split of the shard.
            classes: class names.
        """
        asked = table
        for field in self.fields:
            if field.name not in table.column_names:
                asked = asked.append_column(field, pa.nulls(table.num_rows, field.type))
        mask = condition(parse_query(self.query), TableColumns(asked, split, classes))
        found: pa.Table = table.filter(mask)
        return found

    def expression(self, schema: pa.Schema, classes: Sequence[str]) -> Any:
        """Return the query as ``pyarrow.compute.Expression`` over ``split`` and the columns of the index."""
        return condition(parse_query(self.query), Columns(schema, classes))


def view_of(query: str, schema: pa.Schema, classes: Sequence[str]) -> View:
    """Check a query against the columns of the index, and return its view.

    Raises:
        UsageError: it cannot be read, names a column or class that does not exist, or compares different
            kinds of values.
    """
    tree = parse_query(query)
    # Arrow refuses here what it cannot compute, before any record is read.
    columns = TableColumns(schema.empty_table(), "", classes)
    condition(tree, columns)
    used = [field for field in schema if field.name in columns.used]
    return View(canonical_text(tree), pa.schema(used))
