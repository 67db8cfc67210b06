"""A view: the records of a version for which a query is true, the syntax of queries, and scans of indexes.

A query is a small part of Python's expressions, parsed and never executed::

    or, and, not          conditions
    == != < <= > >=       comparisons, also chained: 100 < width < 800
    in, not in            a list of values, a part of a text, a member of a list column
    is None, is not None  missing values
    + - * /               numbers
    lower(x) len(x) startswith(x, "a") endswith(x, "z") matches(x, "regular expression") column("any name")
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from shardmill.infra.dataset.views.conditions import condition
from shardmill.infra.dataset.views.values import LABEL_NAME, SPLIT, Columns, TableColumns
from shardmill.infra.errors import NotFoundError, UsageError
from shardmill.infra.near_names import near_miss

if TYPE_CHECKING:
    from shardmill.infra.dataset.version import DatasetVersion

_MOST_CHARACTERS = 10_000

_FUNCTIONS = ("column", "endswith", "len", "lower", "matches", "startswith")

_OPERATORS = (
    *(ast.And, ast.Or, ast.Not, ast.USub, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
    *(ast.In, ast.NotIn, ast.Is, ast.IsNot, ast.Add, ast.Sub, ast.Mult, ast.Div),
)
_NODES = (ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.Name, ast.Tuple, ast.List, ast.Load)
_DOCUMENTED = "docs/query-and-views.md lists what a query can say"


def _parse_query(query: str) -> ast.expr:
    """Parse a query.

    Raises:
        UsageError: it is no expression, or has a part that queries do not know.
    """
    if len(query) > _MOST_CHARACTERS:
        raise UsageError(
            f"the query has {len(query):,} characters; at most {_MOST_CHARACTERS:,} are allowed",
            "split it into several views",
        )
    try:
        tree = ast.parse(query, mode="eval").body
        for node in ast.walk(tree):
            _check(node)
    except SyntaxError as error:
        hint = (
            "compare with ==" if "=" in query and "==" not in query else "quote texts, as in label == 'hat'"
        )
        raise UsageError(f"the query {query!r} cannot be read: {error.msg}", hint) from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise UsageError(f"the query {query[:80]!r} cannot be read: {error}", _DOCUMENTED) from error
    return tree


def _check(node: ast.AST) -> None:
    if isinstance(node, (*_OPERATORS, *_NODES)):
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | None):
        return
    if isinstance(node, ast.Call):
        _check_call(node)
        return
    text = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
    raise UsageError(f"a query cannot contain {text!r}", _DOCUMENTED)


def _check_call(node: ast.Call) -> None:
    name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
    if name not in _FUNCTIONS:
        raise UsageError(f"queries have no function {name!r}", near_miss(name, list(_FUNCTIONS)))
    if node.keywords:
        raise UsageError(f"{ast.unparse(node)!r} names an argument", "give the arguments in order")


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
        selected = table
        for field in self.fields:
            if field.name not in table.column_names:
                selected = selected.append_column(field, pa.nulls(table.num_rows, field.type))
        mask = condition(_parse_query(self.query), TableColumns(selected, split, classes))
        found: pa.Table = table.filter(mask)
        return found

    def expression(self, schema: pa.Schema, classes: Sequence[str]) -> Any:
        """Return the query as ``pyarrow.compute.Expression`` over ``split`` and the columns of the index."""
        return condition(_parse_query(self.query), Columns(schema, classes))


def view_of(query: str, schema: pa.Schema, classes: Sequence[str]) -> View:
    """Check a query against the columns of the index, and return its view.

    Raises:
        UsageError: it cannot be read, names a column or class that does not exist, or compares different
            kinds of values.
    """
    tree = _parse_query(query)
    # Arrow refuses here what it cannot compute, before any record is read.
    columns = TableColumns(schema.empty_table(), "", classes)
    condition(tree, columns)
    used = [field for field in schema if field.name in columns.used]
    return View(ast.unparse(tree), pa.schema(used))


def scanner(version: DatasetVersion, schema: pa.Schema, columns: Sequence[str] | None) -> pads.Scanner:
    """Return a scan of the indexes of a version or view; see ``DatasetVersion.scan``.

    Args:
        version: the version or view.
        schema: the columns of all its indexes.
        columns: the columns to read; None: all.
    """
    known = Columns(schema, version.manifest.classes)
    names = known.names() if columns is None else list(columns)
    for name in names:
        if name not in known.names():
            raise NotFoundError(
                f"the indexes of {version.ref} have no column {name!r}", near_miss(name, known.names())
            )
    options: dict[str, Any] = {"columns": {name: _column(known, name) for name in names}}
    if version.view is not None:
        options["filter"] = version.view.expression(schema, version.manifest.classes)
    return _files(version, schema).scanner(**options)


def _column(known: Columns, name: str) -> Any:
    if name == LABEL_NAME:
        return (
            known.label_name(name).data if known.have_one_class else pc.scalar(pa.scalar(None, pa.string()))
        )
    return pc.field(name)


def _files(version: DatasetVersion, schema: pa.Schema) -> pads.FileSystemDataset:
    form, fragments = pads.ParquetFileFormat(), []
    filesystem, folder = version.storage.arrow_folder()
    for split in version.manifest.splits:
        in_split = pc.field(SPLIT) == split
        fragments += [
            form.make_fragment(f"{folder}/{shard.index_path}", filesystem, partition_expression=in_split)
            for shard in version.shards(split)
        ]
    fields = pa.schema([pa.field(SPLIT, pa.string()), *schema])
    return pads.FileSystemDataset(fragments, fields, form, filesystem)
