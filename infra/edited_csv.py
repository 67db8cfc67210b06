"""CSV files that people edit: UTF-8, with the delimiter and the byte-order mark of their spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence

from shardmill.infra.errors import DataError

_DELIMITERS = ",;\t"


def edited_rows(
    data: bytes,
    name: str,
    check_header: Callable[[str, Sequence[str]], None],
    skipped: list[DataError] | None = None,
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number of the last line of each row, and its values without white space around them.

    Args:
        data: the file.
        name: its name for messages.
        check_header: gets the name and the columns, and raises a DataError if they are wrong.
        skipped: takes the problem of each row with too few or too many values; None: it is raised.

    Raises:
        DataError: it is no such file.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not UTF-8: {error}", "save it as CSV in UTF-8") from error
    delimiter = max(_DELIMITERS, key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = [column.strip() for column in next(reader, [])]
        check_header(name, names)
        for column in names:
            if names.count(column) > 1:
                raise DataError(f"{name} has {names.count(column)} columns {column!r}", "remove one")
        for values in reader:
            if not any(values):
                continue  # an empty line
            if len(values) == len(names):
                yield reader.line_num, dict(zip(names, map(str.strip, values), strict=True))
                continue
            problem = DataError(
                f"line {reader.line_num:,} of {name} has {len(values)} values, its header {len(names)}",
                "put values with the delimiter in them into double quotes",
            )
            if skipped is None:
                raise problem
            skipped.append(problem)
    except csv.Error as error:
        raise DataError(f"line {reader.line_num:,} of {name} is no CSV: {error}", "save it again") from error
