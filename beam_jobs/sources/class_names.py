"""Names of classes: names for labels that are numbers, names to keep, and names that are easily confused."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow as pa

from shardmill.beam_jobs.config import ColumnsConfig, PrepareConfig
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from shardmill.infra.errors import ConfigError
from shardmill.infra.near_names import near_names
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import absolute_path, name_of

# Names of folders, without the year that may follow (train2017), that are hardly those of classes.
NO_CLASSES = frozenset({
    *SPLIT_OF_FOLDER, "image", "images", "img", "imgs", "jpegimages", "rgb", "leftimg", "leftimg8bit",
    "mask", "masks", "segmentationclass", "segmentationobject", "gtfine", "gtcoarse", "label", "labels",
    "annotation", "annotations", "imagesets", "bbox", "bboxes", "boxes", "data", "dataset", "datasets",
    "video", "videos", "clips",
})  # fmt: skip

_NAMES_SHOWN = 6
_ALIKE_SHOWN = 3
_INVISIBLE = ("Zs", "Zl", "Zp", "Cc", "Cf")  # categories of Unicode
_DIFFER = "differ only in case, white space or Unicode normalisation"
_DIGITS = re.compile(r"[_-]?[0-9]+$")
_MINUS_ONE = re.compile(r"-1(\.0*)?")  # Hugging Face's mark of images without a label
_WORD = re.compile(r"[a-z/]+")
_WORDS_FOR_NO_CLASS = frozenset({
    "not sure", "unsure", "skip", "skipped", "unknown", "n/a", "na", "nan", "none", "null", "undefined",
    "unlabeled", "unlabelled", "no label", "todo", "tbd", "invalid", "ignore", "don t know", "dont know",
})  # fmt: skip


def wanted_classes(classes: Sequence[str], config: PrepareConfig) -> frozenset[str] | None:
    """Return the classes that ``filter.classes`` keeps, or None if it keeps all.

    Raises:
        ConfigError: it names a class that is not there.
    """
    if config.filter.classes is None:
        return None
    for name in config.filter.classes:
        if name not in classes:
            near = near_names(name, classes)
            raise ConfigError(
                f"filter.classes names {name!r}, which is no class of the source",
                f"did you mean {near[0]!r}?" if near else f"there are: {quoted(classes)}",
            )
    return frozenset(config.filter.classes)


def look_alikes(classes: Sequence[str], remedy: str) -> list[str]:
    """Warn of classes whose names differ only in case, invisible characters or Unicode normalisation."""
    same: dict[str, list[str]] = {}
    for name in classes:
        seen = (letter for letter in name if unicodedata.category(letter) not in _INVISIBLE)
        same.setdefault(unicodedata.normalize("NFKC", "".join(seen).casefold()), []).append(name)
    alike = [names for names in same.values() if len(names) > 1]
    if len(alike) > _ALIKE_SHOWN:
        shown = "; ".join(f"{quoted(names)}{_written(names)}" for names in alike[:_ALIKE_SHOWN])
        more = len(alike) - _ALIKE_SHOWN
        warning = (
            f"{len(alike)} classes are written in several ways, which {_DIFFER}: {shown} and {more} more; "
            f"they stay separate classes: {remedy} if they are one"
        )
        return [warning]
    return [
        f"the classes {quoted(names)} {_DIFFER}{_written(names)}; they stay separate classes: {remedy} if "
        "they are one"
        for names in alike
    ]


def no_classes(classes: Sequence[str], remedy: str) -> list[str]:
    """Warn of classes that are probably no classes, such as "not sure" and "-1"."""
    found = [
        name
        for name in classes
        if " ".join(_WORD.findall(name.casefold())) in _WORDS_FOR_NO_CLASS or _MINUS_ONE.fullmatch(name)
    ]
    if not found:
        return []
    return [f"{quoted(found)} {'sounds' if len(found) == 1 else 'sound'} like no class: {remedy} if so"]


def plain_name(folder: str) -> str:
    """Return the name of a folder in lower case, without the number that it may end in."""
    return _DIGITS.sub("", folder.lower())


def quoted(names: Sequence[str]) -> str:
    """Return the names in quotes, the first few of them."""
    shown = ", ".join(repr(name) for name in names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"


def _written(names: list[str]) -> str:
    """The names in ASCII, in parentheses, if they hold characters that may look alike on a screen."""
    if all(name.isascii() for name in names):
        return ""
    return f" ({', '.join(ascii(name) for name in names[:_NAMES_SHOWN])})"


ClassNumbers = Mapping[int, str]  # number as the source writes it -> name of the class

_NUMBERED = re.compile(r"(\d+)\s*[:,\t]\s*(.+)")
_NUMBER = re.compile(r"[+-]?\d+(\.0+)?")
_ITEM = re.compile(r"item\s*:?\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_WITHIN_ITEM = re.compile(r"\{[^{}]*\}")  # key points of the class, with ids of their own
_ITEM_VALUE = re.compile(r"""\b(\w+)\s*:\s*(?:(\d+)|"([^"]*)"|'([^']*)')""")
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
    JSON list of names; a JSON object of number to name or of name to number; or a label map of TensorFlow's
    Object Detection API (.pbtxt).

    Raises:
        ValueError: it is none of these, or a number or name stands there twice.
    """
    stripped = text.strip()
    if stripped.startswith(("[", "{")):
        pairs = _pairs(json.loads(stripped))
    elif _ITEM.search(stripped):
        pairs = [_pair_of_item(item[1]) for item in _ITEM.finditer(stripped)]
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


def _pair_of_item(text: str) -> tuple[int, str]:
    """Return number and name of an item of a label map."""
    values = {
        key: number or one or other
        for key, number, one, other in _ITEM_VALUE.findall(_WITHIN_ITEM.sub("", text))
    }
    if not values.get("id", "").isdecimal():
        raise ValueError(f"an item has no id: {text.strip()[:40]!r}")
    return int(values["id"]), values.get("display_name") or values.get("name", "")


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
