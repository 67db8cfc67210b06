"""Labels that are numbers: the names of the classes, from the settings or from a file of theirs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from shardmill.beam_jobs.config import ColumnsConfig
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.infra.errors import ConfigError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import absolute_path
from shardmill.infra.storage.names import name_of

ClassNumbers = Mapping[int, str]  # number as the source writes it -> name of the class

_NUMBERED = re.compile(r"(\d+)\s*[:,\t]\s*(.+)")
_NUMBER = re.compile(r"[+-]?\d+(\.0+)?")
_MOST_DIGITS = 20  # longest number of a class, with its sign


def class_numbers(settings: ColumnsConfig, folder: SourceFolder) -> dict[int, str]:
    """Return the number and name of each class, as the settings give them; empty if they give none.

    Args:
        settings: ``class_names``, in the order of their numbers from 0, or ``classes_file``; see
            ``parse_names``.
        folder: the source.

    Raises:
        ConfigError: the file has no names, or both are given. NotFoundError: the file is not there.
    """
    path = settings.classes_file
    if settings.class_names and path:
        raise ConfigError("source.columns has both class_names and classes_file", "give one of them")
    if not path:
        return dict(enumerate(settings.class_names))
    data = _read(path, folder)
    try:
        return parse_names(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"source.columns.classes_file = {path!r} holds no class names: {error}",
            "write a name a line, or number:name a line, or a JSON list or object",
        ) from error


def parse_names(text: str) -> dict[int, str]:
    """Parse class names.

    A name a line, numbered from 0 (empty lines at the end do not count); ``number:name`` in every line; a
    JSON list of names; or a JSON object of number to name or of name to number.

    Raises:
        ValueError: it is none of these, or a number or name stands there twice.
    """
    stripped = text.strip()
    if stripped.startswith(("[", "{")):
        pairs = _pairs(json.loads(stripped))
    else:
        lines = [line.strip() for line in stripped.splitlines()]
        numbered = [_NUMBERED.fullmatch(line) for line in lines if line]
        if all(numbered):
            pairs = [(int(found[1]), found[2]) for found in numbered if found]
        else:
            pairs = list(enumerate(lines))
    if not pairs:
        raise ValueError("it is empty")
    if not all(name for _, name in pairs):
        raise ValueError("a name is empty")
    for what, counted in (
        ("number", Counter[object](number for number, _ in pairs)),
        ("name", Counter[object](name for _, name in pairs)),
    ):
        ((value, count),) = counted.most_common(1)
        if count > 1:
            raise ValueError(f"the {what} {value!r} stands there twice")
    return dict(pairs)


def _pairs(value: object) -> list[tuple[int, str]]:
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return list(enumerate(value))
    if isinstance(value, dict):
        if all(isinstance(name, str) and _NUMBER.fullmatch(key) for key, name in value.items()):
            return [(int(key), name) for key, name in value.items()]
        if all(type(number) is int for number in value.values()):
            return [(number, name) for name, number in value.items()]
    raise ValueError("neither a list of names nor an object of numbers and names")


def name_labels(texts: pa.Array, names: ClassNumbers) -> tuple[pa.Array, pa.Array]:
    """Return the name of the class that each label gives by its number, and why it gives none.

    A label that is the name of a class stays as it is.

    Args:
        texts: string [rows], labels as the source writes them.
        names: number -> name; if empty, all labels stay as they are.

    Returns:
        Names and faults, string [rows]. A fault is null where there is none.
    """
    if not names:
        return texts, pa.nulls(len(texts), pa.string())
    encoded = texts.dictionary_encode()
    known = frozenset(names.values())
    labels, faults = [], []
    for text in encoded.dictionary.to_pylist():
        name = text if text in known else None
        if name is None and _NUMBER.fullmatch(text):
            name = names.get(_whole(text))
        labels.append(name)
        faults.append(None if name is not None else f"its label {text} is the number of no named class")
    return (
        pa.array(labels, pa.string()).take(encoded.indices),
        pa.array(faults, pa.string()).take(encoded.indices),
    )


def is_number(text: str) -> bool:
    """Tell whether a label is a whole number, which may be that of a class."""
    return _NUMBER.fullmatch(text) is not None


def _whole(text: str) -> int:
    """Return a text as a whole number; -1, the number of no class, if it has too many digits."""
    digits = text.partition(".")[0]
    return int(digits) if len(digits) <= _MOST_DIGITS else -1


def _read(path: str, folder: SourceFolder) -> bytes:
    given = name_of(path)
    if "://" not in given and not given.startswith(("/", "~")):
        root = name_of(folder.location) if folder.is_local else folder.location
        return Storage.at(root).read_bytes(given.removeprefix("./"))
    place, mark, options = given.partition("?") if "://" in given else (absolute_path(given), "", "")
    parent, _, name = place.rpartition("/")
    return Storage.at(f"{parent or '/'}{mark}{options}").read_bytes(name)
