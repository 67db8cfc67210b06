"""The lines of lists of images: text with or without a header, and JSON as COCO writes it, without boxes."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shardmill.beam_jobs.config import SourceConfig
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.lists.matlab import names_of_matlab, rows_of_matlab
from shardmill.beam_jobs.sources.kinds.lists.options import ImageList
from shardmill.beam_jobs.sources.kinds.table.delimited import to_utf8
from shardmill.beam_jobs.sources.kinds.table.tables import Table, find_files_named
from shardmill.beam_jobs.sources.recognition.glance import IMAGE_ENDINGS
from shardmill.infra.errors import ConfigError

_SETTING = "source.options.lists.file"
_OF_CLASS = re.compile(r"n\d{8}(?=\s|$)")  # the code of a synset of WordNet


@dataclass
class Said:
    """What a list says, line by line.

    Attributes:
        table: the list.
        how: how it is read.
        numbers: lines, counted from 1.
        paths: the images as the list writes them; None if a line names none.
        labels: a class, or the names of several; None if it gives none.
        splits: train, validation or test; None if it gives none.
        groups: keys of images that stay in one split; None if it gives none.
    """

    table: Table
    how: ImageList
    numbers: list[int] = field(default_factory=list)
    paths: list[str | None] = field(default_factory=list)
    labels: list[str | list[str] | None] = field(default_factory=list)
    splits: list[str | None] = field(default_factory=list)
    groups: list[str | None] = field(default_factory=list)


def read_list(folder: SourceFolder, how: ImageList, settings: SourceConfig) -> Iterator[Said]:
    """Read the files of a list.

    Raises:
        NotFoundError: there is none. ConfigError: one cannot be read as the options say.
    """
    ids: dict[str, str] = {}
    if how.ids is not None:
        for table in find_files_named(folder, how.ids, "source.options.lists.ids"):
            ids |= {row[0]: row[1] for _, row in lines_of(_text(table, settings), None) if len(row) > 1}
    for table in find_files_named(folder, how.file, _SETTING):
        ending = table.path.lower().rpartition(".")[2]
        if ending == "json":
            lines = rows_of_json(_text(table, settings), table.name)
        elif ending == "mat":
            lines = list(enumerate(_rows_of_matlab(table), 1))
        else:
            lines = lines_of(_text(table, settings), how.separator)
        yield _said(table, how, lines, ids, settings)


def _said(
    table: Table,
    how: ImageList,
    lines: Sequence[tuple[int, list[str]]],
    ids: Mapping[str, str],
    settings: SourceConfig,
) -> Said:
    said = Said(table, how)
    header = lines[how.skip - 1][1] if 0 < how.skip <= len(lines) else []
    has_several = settings.label_kind == "multi"
    for number, row in lines[how.skip :]:
        key = _value(row, how.image)
        said.numbers.append(number)
        said.paths.append(ids.get(key) if ids and key is not None else key)
        label: str | list[str] | None = None
        if isinstance(how.label, int):
            label = _value(row, how.label)
        elif how.label == "folder":
            label = next(iter((key or "").split("/")[-2:-1]), None) or None
        elif how.label == "columns":
            flags = row[how.image :]
            found = [name for name, flag in zip(header[-len(flags) :], flags, strict=False) if is_set(flag)]
            one = found[0] if len(found) == 1 else None
            label = found if has_several else one
        if has_several and isinstance(label, str):
            label = label.split("|")
        said.labels.append(label)
        said.splits.append(how.splits.get(row[-1], how.split) if how.splits else how.split)
        said.groups.append(_value(row, how.group) if how.group is not None else None)
    return said


def is_set(flag: str) -> bool:
    """Tell whether a value says that a class applies: 1, and not 0 or -1."""
    return flag in ("1", "1.0", "True", "true")


def _value(row: Sequence[str], column: int) -> str | None:
    """Return the value in a column, counted from 1; None if it is empty or not there."""
    return (row[column - 1].strip() or None) if 0 < column <= len(row) else None


def _text(table: Table, settings: SourceConfig) -> str:
    data, _ = to_utf8(table.name, table.folder.read_bytes(table.path), settings.table.encoding)
    return data.decode("utf-8").removeprefix("\ufeff")


def lines_of(text: str, separator: str | None) -> list[tuple[int, list[str]]]:
    """Return number and values of each line that is neither empty nor a comment.

    Without a separator, white space stands between values. If the lines have different numbers of words, the
    first word is one value and the rest another; a path with blanks before a class is a value too.

    Raises:
        ConfigError: a quote is not closed, or a value is too long.
    """
    if separator is not None:
        try:
            return _separated(text, separator)
        except csv.Error as error:
            raise ConfigError(
                f"a list of images cannot be read: {error}", "look for a quote that is not closed"
            ) from error
    kept = [
        (number, line)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.startswith("#")
    ]
    cut = [(number, line.split()) for number, line in kept]
    widths = {len(row) for _, row in cut[len(cut) // 2 :]}  # titles may stand in front
    if len(widths) > 1:
        return [(number, _with_blanks(line) or line.strip().split(None, 1)) for number, line in kept]
    return [
        (number, row if len(row) in widths else _with_blanks(line) or row)
        for (number, row), (_, line) in zip(cut, kept, strict=True)
    ]


def _separated(text: str, separator: str) -> list[tuple[int, list[str]]]:
    """Return number of the first line, and values, of each row; quotes may hold ends of lines.

    Raises:
        csv.Error: a quote is not closed, or a value is too long.
    """
    found: list[tuple[int, list[str]]] = []
    for is_strict in (True, False):  # strict first: it alone tells of a quote that is not closed
        lines = io.StringIO(text, newline="")
        rows = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=is_strict)
        found, last = [], 0
        try:
            for row in rows:
                found.append((last + 1, row))
                last = rows.line_num
            break
        except csv.Error as error:
            if not is_strict or "unexpected end" in str(error):
                raise
    return [(number, row) for number, row in found if any(row) and not row[0].startswith("#")]


def _with_blanks(line: str) -> list[str] | None:
    """Return an image whose name has blanks, and what stands behind it; None if there is none."""
    path, _, last = line.strip().rpartition(" ")
    if line.strip().lower().endswith(IMAGE_ENDINGS):
        return [line.strip()]
    return [path.strip(), last] if path.lower().endswith(IMAGE_ENDINGS) else None


def rows_of_json(text: str, name: str) -> list[tuple[int, list[str]]]:
    """Return path and class of each image of a JSON file that gives images categories, without boxes.

    Raises:
        ConfigError: it is no such file.
    """
    try:
        document = json.loads(text)
        categories = {one["id"]: str(one["name"]) for one in document["categories"]}
        paths = {one["id"]: str(one["file_name"]) for one in document["images"]}
        return [
            (at, [paths.get(one["image_id"], ""), categories.get(one["category_id"], "")])
            for at, one in enumerate(document["annotations"], 1)
        ]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"the list {name} has no images with categories as COCO writes them: {error!r}",
            "give a JSON file with the lists images, annotations and categories",
        ) from error


def _rows_of_matlab(table: Table) -> list[list[str]]:
    try:
        return rows_of_matlab(table.folder.read_bytes(table.path))
    except ValueError as error:
        raise ConfigError(f"the list {table.name} cannot be read: {error}", "give a list as text") from error


def read_names(data: bytes, name: str, used: set[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return label -> name of its class, and number -> code of the labels that are numbers of codes.

    Args:
        data: content of the file of names.
        name: its name.
        used: the labels.

    Raises:
        ConfigError: labels have no name in the file.
    """
    codes: dict[str, str] = {}
    text = data.decode("utf-8-sig", "replace")
    if name.lower().endswith(".mat"):
        try:
            text, codes = names_of_matlab(data)
        except ValueError as error:
            raise ConfigError(f"{name} has no names of classes: {error}", "give them as text") from error
    return names_in(text, {codes.get(label, label) for label in used}), codes


def names_in(text: str, used: set[str]) -> dict[str, str]:
    """Return label as the lists write it -> name of the class.

    The file has a label and its name in each line (``n01440764 tench``), or the name first
    (``/a/airfield 0``), or a name a line, numbered from 0 or 1 as the labels are. Of two labels with the same
    name each gets its label behind it.

    Raises:
        ConfigError: labels have no name in the file.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if lines and lines[0] == str(len(lines) - 2):  # their number, and titles: the first is that of the names
        more = len(lines[1].split()) - 1
        lines = [line.rsplit(None, more)[0] for line in lines[2:]]
    first = {plain_number(line.split(None, 1)[0]): line.split(None, 1)[-1].strip() for line in lines}
    last = {plain_number(line.rsplit(None, 1)[-1]): _plain(line.rsplit(None, 1)[0]) for line in lines}
    base = 0 if "0" in used else 1
    numbered = {str(number): line for number, line in enumerate(lines, base)}
    for found in (first, last, numbered):
        if len(found) == len(lines) and all(plain_number(label) in found for label in used):
            names = {label: found[plain_number(label)] for label in used}
            seen = Counter(names.values())
            return {label: name if seen[name] == 1 else f"{name} ({label})" for label, name in names.items()}
    missing = sorted(used - first.keys())[:3]
    raise ConfigError(
        f"the file of names has no line for the classes {', '.join(missing)}", "correct source.options.names"
    )


def _plain(folder: str) -> str:
    """Return the name of a class that stands as a folder: airfield for /a/airfield."""
    return re.sub(r"^/[a-z]/", "", folder)


def plain_number(label: str) -> str:
    """Return a number without zeros before it; any other label unchanged."""
    return str(int(label)) if label.isdecimal() else label


def first_code(value: str) -> str:
    """Return the code of a synset that a value begins with, as ``n03995372 85 1 499 272``; else all of it."""
    found = _OF_CLASS.match(value)
    return value if found is None else found[0]
