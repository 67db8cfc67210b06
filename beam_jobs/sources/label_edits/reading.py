"""Read label edits: CSV files with a row for each image, as ``label-errors.csv`` of a training is one.

A row names an image by its ``source_uri``. ``label`` is its right label. ``decision`` says what to do where
no label is written: ``accept`` takes the ``suggested_label``, ``drop`` leaves the image out, and ``keep``
changes nothing. A row with neither was not decided, so a list of suggestions changes nothing by itself.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.table.tables import Table, find_files_named
from shardmill.infra.errors import DataError
from shardmill.infra.near_names import near_names

SETTING: Final = "source.label_edits"
DECISIONS: Final = ("accept", "drop", "keep")
_NEEDED, _LABEL, _DECISION, _SUGGESTED = "source_uri", "label", "decision", "suggested_label"
_COLUMNS = (_NEEDED, _LABEL, _DECISION, _SUGGESTED, "id", "split", "given_label", "score", "comment")
_DELIMITERS = ",;\t"
_REMEDY = f"a row needs a {_LABEL}, or a {_DECISION}: {', '.join(DECISIONS)}; or leave both empty"


@dataclass(frozen=True)
class LabelEdits:
    """The decisions of all files.

    Attributes:
        decided: URI of an image -> its label; None to leave it out.
        num_undecided: rows without a decision, and rows that keep the label.
    """

    decided: Mapping[str, str | None] = field(default_factory=dict)
    num_undecided: int = 0


def read_label_edits(source: SourceFolder, given: str) -> LabelEdits:
    """Read the files that ``source.label_edits`` names.

    Args:
        source: the source.
        given: relative to the source, an absolute path, or a URI; a pattern names several files.

    Raises:
        NotFoundError: there is no such file.
        DataError: a file is no such CSV, a row makes no sense, or two rows contradict each other.
    """
    decided: dict[str, str | None] = {}
    places: dict[str, str] = {}
    num_undecided = 0
    for file in find_files_named(source, given, SETTING):
        for line, row in _rows(file):
            place = f"line {line:,} of {file.name}"
            uri = row[_NEEDED]
            if not uri:
                raise DataError(f"{place} has no {_NEEDED}", "name the image, as the index of a version does")
            decides, label = _decision(row, place)
            if not decides:
                num_undecided += 1
            elif uri in decided and decided[uri] != label:
                raise DataError(
                    f"{place} contradicts {places[uri]} about {uri!r}: {_words(label)}, and "
                    f"{_words(decided[uri])}",
                    "remove the older row",
                )
            else:
                decided[uri] = label
                places.setdefault(uri, place)
    return LabelEdits(decided, num_undecided)


def files_of_edits(source: SourceFolder, given: str) -> list[str]:
    """Return the URIs of the files of label edits that lie in the source: they are no inputs.

    Raises:
        NotFoundError: there is none. ConfigError: the path is wrong.
    """
    return [file.uri for file in find_files_named(source, given, SETTING) if file.uri is not None]


def _decision(row: Mapping[str, str], place: str) -> tuple[bool, str | None]:
    """Return whether a row decides anything, and the label; None to leave the image out."""
    label, decision = row.get(_LABEL, ""), row.get(_DECISION, "").lower()
    if decision and decision not in DECISIONS:
        raise DataError(f"{place}: {row[_DECISION]!r} is no {_DECISION}", _REMEDY)
    if label and decision:
        raise DataError(f"{place} has the {_LABEL} {label!r} and the {_DECISION} {decision!r}", _REMEDY)
    if decision == "accept":
        label = row.get(_SUGGESTED, "")
        if not label:
            raise DataError(f"{place} accepts a {_SUGGESTED}, and has none", f"write the {_LABEL} instead")
    if any(mark in label for mark in "\r\n"):
        raise DataError(f"{place}: the label {label!r} has several lines", "close the quotes before it")
    return bool(label) or decision == "drop", label or None


def _rows(file: Table) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number of the last line of each row, and its values without white space around them."""
    try:
        text = file.folder.read_bytes(file.path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{file.name} is not UTF-8: {error}", "save it as CSV in UTF-8") from error
    delimiter = max(_DELIMITERS, key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = [name.strip() for name in next(reader, [])]
        _check_header(file.name, names)
        for values in reader:
            if not any(values):
                continue  # an empty line
            if len(values) != len(names):
                raise DataError(
                    f"line {reader.line_num:,} of {file.name} has {len(values)} values, "
                    f"its header {len(names)}",
                    "put values with the delimiter in them into double quotes",
                )
            yield reader.line_num, dict(zip(names, map(str.strip, values), strict=True))
    except csv.Error as error:
        raise DataError(
            f"line {reader.line_num:,} of {file.name} is no CSV: {error}", "save it again"
        ) from error


def _check_header(name: str, names: Sequence[str]) -> None:
    for column in names:
        if column not in _COLUMNS:
            near = near_names(column, _COLUMNS)
            raise DataError(
                f"{name} has a column {column!r}, which label edits do not know",
                f"did you mean {near[0]!r}?" if near else f"they have {', '.join(_COLUMNS)}",
            )
        if names.count(column) > 1:
            raise DataError(f"{name} has {names.count(column)} columns {column!r}", "remove one")
    if _NEEDED not in names or not {_LABEL, _DECISION} & set(names):
        raise DataError(
            f"{name} has no column {_NEEDED if _NEEDED not in names else _LABEL!r}",
            f"label edits need {_NEEDED} and {_LABEL} or {_DECISION}, as a label-errors.csv has them",
        )


def _words(label: str | None) -> str:
    return "leave it out" if label is None else f"label {label!r}"
