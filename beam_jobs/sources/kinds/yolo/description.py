"""The description of a YOLO dataset: ``data.yaml`` of ultralytics and Roboflow, or ``obj.data`` of Darknet.

The format: https://docs.ultralytics.com/datasets/detect. Class names may also stand in a file of their own:
``classes.txt`` of LabelImg and Label Studio, ``obj.names`` of Darknet.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shardmill.beam_jobs.sources.class_names import parse_names, quoted
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.features import KeyPoints, partners_by_name

ENDINGS = (".yaml", ".yml", ".data")
_USUAL_NAMES = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")

# Keys of the images of a split, and the split; the first of two that are there counts.
_SPLITS = (
    ("train", "train"), ("val", "validation"), ("validation", "validation"), ("valid", "validation"),
    ("test", "test"),
)  # fmt: skip
_TASKS = {"segment": "segment", "obb": "obb", "detect": None, "pose": None}
_MOST_POINTS = 10_000
_WORD = re.compile("[A-Za-z]+")
_TASK_WORDS = {"obb": "obb", "dota": "obb", "dotav": "obb"}  # DOTA is a dataset of oriented boxes
_TASK_WORDS |= dict.fromkeys(("seg", "segment", "segmentation"), "segment")
_ROBOFLOW = re.compile(r"annotated in (YOLO[^.\n]*) format")


@dataclass(frozen=True, slots=True)
class Description:
    """What a description says.

    Attributes:
        uri: of the file in the source; "" if it is elsewhere or there is none.
        name: the file, for people.
        root: the folder of all images, as the file writes it; "" if it names none.
        parts: (key, split, folder or list of images as the file writes it).
        names: number of a class -> its name; empty if the file has none.
        names_file: file with the names, as the file writes it, or None.
        task: "segment" or "obb" if the file says so.
        key_points: of each object (``kpt_shape``, ``kpt_names``, ``flip_idx``), or None.
        per_point: numbers of each key point, 2 or 3.
        warnings: about the file.
    """

    uri: str = ""
    name: str = ""
    root: str = ""
    parts: tuple[tuple[str, str, str], ...] = ()
    names: Mapping[int, str] = field(default_factory=dict)
    names_file: str | None = None
    task: str | None = None
    key_points: KeyPoints | None = None
    per_point: int = 3
    warnings: tuple[str, ...] = ()


def parse(data: bytes, name: str, uri: str) -> Description | None:
    """Parse a description; None if the file is something else.

    A file with one of the usual names may lack the names of classes.

    Raises:
        ConfigError: it is a description with a value that is wrong, or has a usual name and is no YAML.
    """
    is_usual = name.rpartition("/")[2] in _USUAL_NAMES
    try:
        text = data.decode("utf-8-sig")
        values = _of_darknet(text) if name.endswith(".data") else _of_yaml(text)
    except (ValueError, RecursionError) as error:
        if is_usual:
            raise ConfigError(f"{name} is no YAML: {error}", "correct it, or leave it out") from error
        return None
    has_names = values is not None and (_is_set(values.get("names")) or _is_set(values.get("nc")))
    if values is None or not (has_names or is_usual):
        return None
    parts = tuple(_parts(values, name))
    if not parts:
        return None
    names_file = values.get("names") if name.endswith(".data") else None
    names = {} if names_file or not has_names else _names(values.get("names"), values.get("nc"), name)
    num_points, per_point = _points(values.get("kpt_shape"), name)
    task = values.get("task")
    if _is_set(task) and task not in _TASKS:
        raise ConfigError(f"{name}: task {task!r} is not read", f"objects of {', '.join(_TASKS)} are")
    return Description(
        uri,
        name,
        values["path"] if isinstance(values.get("path"), str) else "",
        parts,
        names,
        names_file,
        _TASKS.get(str(task)),
        _key_points(values, num_points, name) if num_points else None,
        per_point,
        tuple(_warnings(names, values.get("nc"), name)) if names else (),
    )


def task_of_name(name: str) -> str | None:
    """Return the task that the name of a file or folder tells: ``dota8``, ``road-obb``, ``coco8-seg``."""
    found = {_TASK_WORDS[word.lower()] for word in _WORD.findall(name) if word.lower() in _TASK_WORDS}
    return found.pop() if len(found) == 1 else None


def task_of_readme(text: str) -> str | None:
    """Return the task that a ``README.roboflow.txt`` tells: "... are annotated in YOLOv8 format."."""
    form = _ROBOFLOW.search(text)
    return None if form is None else "obb" if "Oriented" in form[1] else "segment"


def _parts(values: Mapping[str, Any], name: str) -> Iterator[tuple[str, str, str]]:
    """Yield key, split, and each folder or list of images."""
    for key, split in _SPLITS:
        if _is_set(values.get(key)):
            for place in _texts(values[key], key, name):
                yield key, split, place


def _of_yaml(text: str) -> dict[str, Any] | None:
    """Return the values of a YAML file, all of them text: a class named ``no`` is no truth value."""
    import yaml  # of the extra prepare: loaded for this kind alone

    try:
        values = yaml.load(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error  # its many lines as one
    return values if isinstance(values, dict) else None


def _of_darknet(text: str) -> dict[str, Any]:
    """Return the values of a file with ``key = value`` in each line."""
    lines = (line.partition("=") for line in text.splitlines() if not line.lstrip().startswith("#"))
    return {key.strip(): value.strip() for key, mark, value in lines if mark}


def _is_set(value: object) -> bool:
    """Tell whether a value is there; YAML reads ``test:`` as an empty text."""
    return value not in (None, "", "null", "~", [], {})


def _texts(value: object, key: str, name: str) -> list[str]:
    values = value if isinstance(value, list) else [value]
    texts = [one for one in values if isinstance(one, str) and one]
    if len(texts) < len(values):
        raise ConfigError(f"{name}: {key} is no folder or list of images, or list of these", "correct it")
    return texts


def _names(names: object, count: object, name: str) -> dict[int, str]:
    """Return the class names; without any ``nc`` gives as many, named as ultralytics does."""
    if not _is_set(names):
        number = _whole(count)
        if number is None or not 0 < number <= _MOST_POINTS:
            raise ConfigError(f"{name}: nc = {count!r} is no number of classes", "give names")
        return {at: f"class_{at}" for at in range(number)}
    pairs: list[tuple[object, object]]
    if isinstance(names, dict):
        pairs = list(names.items())
    elif isinstance(names, list):
        pairs = list(enumerate(names))
    else:
        raise ConfigError(f"{name}: names is neither a list nor number: name", "correct it")
    found: dict[int, str] = {}
    for key, value in pairs:
        number = _whole(key)
        if number is None or number < 0 or number in found or not isinstance(value, str) or not value:
            raise ConfigError(
                f"{name}: names has no name for the class {key!r}, or two", "give each number a name"
            )
        found[number] = value
    return found


def _whole(value: object) -> int | None:
    try:
        number = float(value) if isinstance(value, str | int) else math.nan
    except (ValueError, OverflowError):
        return None
    return int(number) if number.is_integer() else None


def _points(shape: object, name: str) -> tuple[int, int]:
    """Return the number of key points, and of numbers of each; 0 points without ``kpt_shape``."""
    if not _is_set(shape):
        return 0, 3
    numbers = [_whole(value) for value in shape] if isinstance(shape, list) else []
    match numbers:
        case [int(count), 2 | 3 as each] if 0 < count <= _MOST_POINTS:
            return count, each
    raise ConfigError(
        f"{name}: kpt_shape = {shape!r} is not the number of key points, and 2 or 3", "write [17, 3]"
    )


def _key_points(values: Mapping[str, Any], count: int, name: str) -> KeyPoints:
    """Return what the key points are. Without names, the same for all classes, they have numbers.

    Raises:
        ConfigError: flip_idx does not pair them.
    """
    given, order = values.get("kpt_names"), values.get("flip_idx")
    lists = list(given.values()) if isinstance(given, dict) else [given]
    names = tuple(map(str, lists[0])) if lists and isinstance(lists[0], list) else ()
    if len(set(names)) != count or len(names) != count or any(other != lists[0] for other in lists):
        names = tuple(map(str, range(count)))
    partners = partners_by_name(names)
    try:
        if _is_set(order):
            partners = tuple(map(int, order or ()))
        return KeyPoints(names=names, partners=partners)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{name}: flip_idx does not pair the {count} key points", "correct it, or leave it out"
        ) from error


def _warnings(names: Mapping[int, str], count: object, name: str) -> Iterator[str]:
    if _is_set(count) and _whole(count) != len(names):
        yield f"{name} names {len(names):,} classes, and says nc = {count}: the names count"
    same = [text for text, times in Counter(names.values()).items() if times > 1]
    if same:
        yield f"{name} gives several numbers the name {quoted(same)}: they become one class"


def parse_names_file(data: bytes, name: str) -> dict[int, str]:
    """Return number -> name of a file with a class name a line.

    Raises:
        ConfigError: it holds none.
    """
    try:
        return parse_names(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} holds no class names: {error}", "write a name a line") from error
