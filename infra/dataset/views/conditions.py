"""Turn a parsed query into a condition on the columns of the index, and compute the functions of queries.

A comparison with a missing value is neither true nor false, as in SQL: the record is not selected, by the
comparison or by its negation. ``is None`` finds such records.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from shardmill.infra.dataset.views.values import LABEL, LABEL_NAME, Columns, Value, kind_of
from shardmill.infra.errors import UsageError
from shardmill.infra.format.known_features import LABELS


def _apply_function(name: str, arguments: Sequence[Value], columns: Columns, text: str) -> Value:
    """Return the value of a function of the query.

    Raises:
        UsageError: the number or the kinds of its arguments are wrong.
    """
    wanted = 1 if name in ("column", "len", "lower") else 2
    if len(arguments) != wanted:
        given = f"it takes {wanted} argument{'s' * (wanted > 1)}, not {len(arguments)}"
        raise UsageError(f"{text}: {given}", "docs/query-and-views.md has examples")
    if name == "column":
        return columns.get(_constant_text(arguments[0], text))
    subject = arguments[0]
    if subject.column == LABEL and subject.kind == "number":
        subject = columns.label_name(subject.text)
    if subject.constant or subject.kind not in (("text", "list") if name == "len" else ("text",)):
        raise UsageError(f"{text}: {subject.text!r} is no column of texts", "give a column of texts first")
    if name == "len":
        length = pc.utf8_length if subject.kind == "text" else pc.list_value_length
        return Value("number", length(subject.data), text, pa.int32())
    if name == "lower":
        return Value("text", pc.utf8_lower(subject.data), text, pa.string())
    tell: Callable[..., object] = {
        "startswith": pc.starts_with,
        "endswith": pc.ends_with,
        "matches": pc.match_substring_regex,
    }[name]
    wanted_text = _constant_text(arguments[1], text)
    tell("", wanted_text)  # refuses a wrong regular expression, also where there is no record
    return Value("truth", tell(subject.data, wanted_text), text, pa.bool_())


def _constant_text(value: Value, text: str) -> str:
    if not value.constant or value.kind != "text":
        raise UsageError(f"{text}: {value.text} is no text", "give a text in quotes")
    found: str = value.data.as_py()
    return found


_COMPARISONS: dict[type[ast.cmpop], Callable[..., Any]] = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}
_ARITHMETIC: dict[type[ast.operator], Callable[..., Any]] = {
    ast.Add: pc.add,
    ast.Sub: pc.subtract,
    ast.Mult: pc.multiply,
    ast.Div: pc.divide,
}
_SEPARATOR = "\x1f"  # between the members of a list that are searched as one text
_FOLDED = {"truth": "true or false", "text": "text", "number": "a number", "time": "a time", "list": "a list"}


def condition(tree: ast.expr, columns: Columns) -> Any:
    """Return the condition: a ``ChunkedArray`` of booleans, or an ``Expression``, as ``columns`` has them.

    Raises:
        UsageError: a column or class does not exist, or values of different kinds are compared.
    """
    try:
        found = _truth(tree, columns)
    except (pa.ArrowException, RecursionError) as error:
        raise UsageError(f"the query {ast.unparse(tree)[:80]!r} cannot be computed: {error}") from error
    return found


def _truth(node: ast.expr, columns: Columns) -> Any:
    if isinstance(node, ast.BoolOp):
        join = pc.and_kleene if isinstance(node.op, ast.And) else pc.or_kleene
        return reduce(join, [_truth(each, columns) for each in node.values])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return pc.invert(_truth(node.operand, columns))
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        pairs = zip(node.ops, sides, sides[1:], strict=False)
        return reduce(pc.and_kleene, [_compared(op, left, right, columns) for op, left, right in pairs])
    value = _value(node, columns)
    if value.kind != "truth" or value.constant:
        raise UsageError(f"{value.text!r} is no condition", "compare it with something, as in width > 800")
    return value.data


def _compared(op: ast.cmpop, left: ast.expr, right: ast.expr, columns: Columns) -> Any:
    if isinstance(op, ast.Is | ast.IsNot):
        return _missing(op, left, right, columns)
    if isinstance(op, ast.In | ast.NotIn):
        found = _contained(left, right, columns)
        return pc.invert(found) if isinstance(op, ast.NotIn) else found
    one, other = _alike(_value(left, columns), _value(right, columns), columns)
    if one.kind == "list":
        raise UsageError(f"{one.text!r} is a list", f"ask for a member: 1 in {one.text}")
    return _COMPARISONS[type(op)](columns.operand(one), columns.operand(other))


def _missing(op: ast.cmpop, left: ast.expr, right: ast.expr, columns: Columns) -> Any:
    if not (isinstance(right, ast.Constant) and right.value is None):
        raise UsageError(f"'is {ast.unparse(right)}' is not known", "use ==; 'is' asks only for None")
    value = _column_of(left, columns)
    return pc.is_null(value.data) if isinstance(op, ast.Is) else pc.is_valid(value.data)


def _contained(left: ast.expr, right: ast.expr, columns: Columns) -> Any:
    if isinstance(right, ast.Tuple | ast.List):
        return _one_of(_column_of(left, columns), right.elts, columns)
    holder, part = _column_of(right, columns), _value(left, columns)
    if not part.constant:
        raise UsageError(f"{part.text!r} before 'in' is a column", f"name a value: 'a' in {holder.text}")
    if holder.column == LABEL and part.kind == "text":
        holder = columns.label_name(holder.text)
    if holder.kind == "text" and part.kind == "text":
        return pc.match_substring(holder.data, part.data.as_py())
    if holder.column == LABELS and part.kind == "text":
        columns.check_class(part.data.as_py())
        number = pa.scalar(columns.classes.index(part.data.as_py()))
        part = Value("number", number, part.text, number.type, constant=True)
    if holder.kind == "list" and kind_of(holder.type.value_type) == part.kind:
        return _member(holder, part)
    raise UsageError(
        f"{part.text} cannot be in {holder.text!r}, which is {_described(holder)}", "give a list: x in (1, 2)"
    )


def _one_of(value: Value, elements: Sequence[ast.expr], columns: Columns) -> Any:
    constants = [_value(element, columns) for element in elements]
    if not constants:
        raise UsageError(f"{value.text!r} is compared with an empty list", "name a value")
    pairs = [_alike(value, constant, columns) for constant in constants]
    if not all(constant.constant for _, constant in pairs):
        raise UsageError(f"the list after {value.text!r} names a column", "name values only")
    column, wanted = pairs[0][0], [constant.data.as_py() for _, constant in pairs]
    if column.kind != "number":
        known, data = pa.array(wanted, column.type), column.data
    else:
        known = pa.array(wanted, pa.float64() if types.is_floating(column.type) else None)
        data = column.data.cast(known.type)
    # A missing value is not known to be outside the list either.
    return pc.if_else(pc.is_valid(data), pc.is_in(data, value_set=known), pa.scalar(None, pa.bool_()))


def _member(holder: Value, part: Value) -> Any:
    """Tell whether a constant is a member of a list column: the members are searched as one text."""
    texts = holder.data
    if holder.type.value_type != pa.string():
        texts = texts.cast(pa.list_(pa.string()))
        part_text = str(part.data.cast(holder.type.value_type).cast(pa.string()))
    else:
        part_text = part.data.as_py()
    pattern = f"(?s)(?:^|{_SEPARATOR}){re.escape(part_text)}(?:{_SEPARATOR}|$)"
    joined = pc.match_substring_regex(pc.binary_join(texts, _SEPARATOR), pattern)
    return pc.and_kleene(joined, pc.greater(pc.list_value_length(texts), 0))


def _value(node: ast.expr, columns: Columns) -> Value:
    text = ast.unparse(node)
    if isinstance(node, ast.Constant):
        return _constant(node.value, text)
    if isinstance(node, ast.Name):
        return columns.get(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _number(_value(node.operand, columns))
        return Value("number", pc.negate(value.data), text, value.type, value.constant)
    if isinstance(node, ast.BinOp):
        return _calculated(node, columns, text)
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        return _apply_function(node.func.id, [_value(each, columns) for each in node.args], columns, text)
    if isinstance(node, ast.Tuple | ast.List):
        raise UsageError(f"{text} is a list of values", f"a list can only follow 'in': x in {text}")
    return Value("truth", _truth(node, columns), text, pa.bool_())


def _constant(value: Any, text: str) -> Value:
    if value is None:
        raise UsageError("the query compares with None", "write 'x is None' or 'x is not None'")
    try:
        scalar = pa.scalar(value)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise UsageError(f"{text} is no value for a query: {error}") from error
    kind = kind_of(scalar.type)
    assert kind is not None
    return Value(kind, scalar, text, scalar.type, constant=True)


def _column_of(node: ast.expr, columns: Columns) -> Value:
    value = _value(node, columns)
    if value.constant:
        raise UsageError(f"{value.text} is a value", "name a column there")
    return value


def _calculated(node: ast.BinOp, columns: Columns, text: str) -> Value:
    wide = pa.float64() if isinstance(node.op, ast.Div) else None
    left, right = (_number(_value(each, columns), wide) for each in (node.left, node.right))
    kind = pa.float64() if pa.float64() in (left.type, right.type) else pa.int64()
    constant = left.constant and right.constant
    sides = (left.data, right.data) if constant else (columns.operand(left), columns.operand(right))
    return Value("number", _ARITHMETIC[type(node.op)](*sides), text, kind, constant)


def _number(value: Value, wide: pa.DataType | None = None) -> Value:
    """Return a number that is wide enough to calculate with."""
    if value.kind != "number":
        raise UsageError(f"{value.text!r} is {_described(value)}", "only numbers can be calculated with")
    to = wide or (pa.float64() if types.is_floating(value.type) else pa.int64())
    return Value("number", value.data.cast(to), value.text, to, value.constant)


def _alike(one: Value, other: Value, columns: Columns) -> tuple[Value, Value]:
    """Return two values of the same kind: class numbers become names, texts become times.

    Raises:
        UsageError: they cannot be compared.
    """
    if one.constant and other.constant:
        raise UsageError(f"{one.text} and {other.text} are both values", "name a column, as in width > 800")
    named = _by_name(one, other, columns), _by_name(other, one, columns)
    for value, against in (named, named[::-1]):
        if against.column == LABEL_NAME and value.constant and value.kind == "text":
            columns.check_class(value.data.as_py())
    left, right = _as_time(*named), _as_time(*named[::-1])
    if left.kind != right.kind:
        raise UsageError(
            f"{left.text!r} is {_described(left)} and {right.text!r} is {_described(right)}",
            "compare values of the same kind; texts stand in quotes, numbers do not",
        )
    return left, right


def _by_name(value: Value, against: Value, columns: Columns) -> Value:
    is_label = value.column == LABEL and value.kind == "number" and against.kind == "text"
    return columns.label_name(value.text) if is_label else value


def _as_time(value: Value, against: Value) -> Value:
    if against.kind != "time" or value.kind != "text" or not value.constant:
        return value
    try:
        return Value("time", value.data.cast(against.type), value.text, against.type, constant=True)
    except pa.ArrowInvalid as error:
        raise UsageError(f"{value.text} is no time", "write it like '2024-05-01 12:30:00'") from error


def _described(value: Value) -> str:
    return _FOLDED.get(value.kind, "of no known kind")
