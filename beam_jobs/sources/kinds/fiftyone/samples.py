"""The samples of FiftyOne's exports: their images, and the field that holds their labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from shardmill.beam_jobs.sources.annotations.collecting import AnnotatedImage, ends_of, is_text, size_of
from shardmill.beam_jobs.sources.annotations.reading import AnnotationTable
from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from shardmill.infra.errors import ConfigError, NotFoundError

FILES = ("samples.json", "labels.json")
_METADATA = "metadata.json"  # of all samples, beside samples.json
_USUAL = "ground_truth"
_SAMPLES = re.compile(r'"samples"\s*:\s*\[')
_LABELS = re.compile(r'\A\s*\{(\s*"classes"\s*:\s*(null|\[[^\]]*\])\s*,)?\s*"labels"\s*:\s*\{')

# Class of a field -> what it holds.
KINDS: Mapping[str, Literal["objects", "class", "several"]] = {
    **dict.fromkeys(("Detections", "Detection", "Polylines", "Polyline", "Keypoints", "Keypoint"), "objects"),
    "Classification": "class",
    "Classifications": "several",
}


@dataclass(frozen=True)
class Sample:
    """An exported sample.

    Attributes:
        image: the image, its split and its size.
        label: the value of the field with the labels; None if it has none.
        entry: all of its fields, by their names.
    """

    image: AnnotatedImage
    label: Any
    entry: Mapping[str, Any]


@dataclass(frozen=True)
class Samples:
    """The samples of a file.

    Attributes:
        fields: name of each field that may hold the labels -> its class; the chosen one if one was named.
        images: the samples.
        skeleton: names of key points, and lists of their numbers that are joined; None if there is none.
    """

    fields: Mapping[str, str]
    images: Sequence[Sample] = ()
    skeleton: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> Literal["objects", "class", "several"]:
        """What the labels are."""
        return KINDS[next(iter(self.fields.values()))]


def read_samples(table: AnnotationTable, asked: str | None) -> Samples:
    """Read a file of samples.

    Args:
        table: the file.
        asked: the field with the labels; None to take the only one, or ``ground_truth``.

    Raises:
        ConfigError: it is none, or which field is meant cannot be told.
    """
    try:
        document = json.loads(table.read())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the file {table.name} is no JSON: {error}") from error
    entries = _entries(document)
    if entries is None:
        raise ConfigError(
            f"{table.name} has no list 'samples' and no object 'labels'",
            "give samples.json or labels.json of an export of FiftyOne",
        )
    fields = _fields(entries, asked)
    if len(fields) != 1:
        shown = ", ".join(_fields(entries, None, every=True)) or "none of them"
        wanted = f"no field {asked!r} that holds labels" if asked else "several fields of labels"
        raise ConfigError(
            f"{table.name} has {wanted if fields or asked else 'no field of labels'}",
            f"name one with --set source.columns.label=NAME; labels are in {shown}",
        )
    (name,) = fields
    images = [_sample(table, at, entry, name) for at, entry in enumerate(entries, 1)]
    return Samples(fields, images, _skeleton(table, name) if fields[name].startswith("Keypoint") else {})


def first_samples(head: bytes, asked: str | None) -> Samples | None:
    """Return the fields of the first samples of a file, by its first bytes; None if it is none."""
    text = head.decode("utf-8", "replace")
    if (found := _SAMPLES.search(text)) is not None and '"filepath"' in text:
        return Samples(_fields(list(_objects(text, found.end())), asked))
    found = _LABELS.match(text)
    if found is None:
        return None
    pairs = re.finditer(r'"[^"]*"\s*:\s*', text[found.end() :])
    first = next((pair for pair in pairs), None)
    values = [] if first is None else list(_objects(text, found.end() + first.end(), most=1))
    labels = {"": values[0]} if values else {}
    entries = _entries({"classes": [], "labels": labels})
    return Samples(_fields(entries or [], asked)) if values else None


def _objects(text: str, start: int, most: int = 256) -> Iterator[Any]:
    """Yield the values of JSON of a list that begins in a text, and may end beyond it."""
    decoder = json.JSONDecoder()
    for _ in range(most):
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            return
        yield value
        start = end
        while start < len(text) and text[start] in " \t\r\n,":
            start += 1


def _entries(document: Any) -> list[Any] | None:
    """Return the samples of a file, or those that its object of labels stands for."""
    if not isinstance(document, dict):
        return None
    if isinstance(document.get("samples"), list):
        return list(document["samples"])
    labels, classes = document.get("labels"), document.get("classes")
    if not isinstance(labels, dict):
        return None
    names = classes if isinstance(classes, list) else []
    return [{"filepath": f"data/{key}", "": _as_label(value, names)} for key, value in labels.items()]


def _as_label(value: Any, names: Sequence[Any]) -> Any:
    """Return a value of labels.json as samples.json writes it; numbers stand for names of classes."""

    def name_of(target: Any) -> Any:
        is_number = isinstance(target, int) and not isinstance(target, bool)
        return names[target] if is_number and 0 <= target < len(names) else target

    if isinstance(value, dict) and "label" in value:
        return {**value, "_cls": "Classification", "label": name_of(value["label"])}
    if not isinstance(value, list):
        return None if value is None else {"_cls": "Classification", "label": name_of(value)}
    if not value:
        return None
    if all(isinstance(one, dict) and "bounding_box" in one for one in value):
        objects = [{**one, "_cls": "Detection", "label": name_of(one.get("label"))} for one in value]
        return {"_cls": "Detections", "detections": objects}
    several = [{"label": name_of(one.get("label") if isinstance(one, dict) else one)} for one in value]
    return {"_cls": "Classifications", "classifications": several}


def _fields(entries: Sequence[Any], asked: str | None, *, every: bool = False) -> dict[str, str]:
    """Return the fields that may hold the labels, with their classes."""
    found: dict[str, str] = {}
    for entry in entries:
        for name, value in entry.items() if isinstance(entry, dict) else ():
            kind = value.get("_cls") if isinstance(value, dict) else None
            if isinstance(kind, str) and kind in KINDS and (asked is None or name == asked):
                found.setdefault(name, kind)
    usual = {name: kind for name, kind in found.items() if name == _USUAL}
    objects = {name: kind for name, kind in found.items() if KINDS[kind] == "objects"}
    if every or len(found) < 2:
        return found
    return usual or (objects if len(objects) == 1 else found)


def _sample(table: AnnotationTable, at: int, entry: Any, name: str) -> Sample:
    """Read a sample; ``name`` is its field of labels."""
    who = f"sample {at} of {table.name}"
    image = AnnotatedImage(table.row_uri(at), who, None, table.part.split)
    if not isinstance(entry, dict):
        return Sample(replace(image, fault="it is no object of JSON"), None, {})
    path, metadata, tags = entry.get("filepath"), entry.get("metadata"), entry.get("tags")
    size = size_of(metadata.get("height"), metadata.get("width")) if isinstance(metadata, dict) else None
    words = [tag.lower() for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    splits = {SPLIT_OF_FOLDER[word] for word in words if word in SPLIT_OF_FOLDER}
    fault = f"its tags name several splits: {', '.join(sorted(splits))}" if len(splits) > 1 else None
    if isinstance(path, str) and not is_text(path):
        fault = "its filepath holds half a character of a pair"
    image = replace(
        image,
        path=table.path_of(path) if isinstance(path, str) and path and fault is None else None,
        split=splits.pop() if len(splits) == 1 else table.part.split,
        size=size,
        fault=fault,
        ends=ends_of(path) if fault is None else (),
    )
    label = entry.get(name)
    return Sample(image, label if isinstance(label, dict) else None, entry)


def _skeleton(table: AnnotationTable, field_name: str) -> Mapping[str, Any]:
    """Return the skeleton of a field of key points, as the metadata beside the samples give it."""
    folder, slash, _ = table.table.path.rpartition("/")
    try:
        document = json.loads(table.table.folder.read_bytes(f"{folder}{slash}{_METADATA}"))
    except (NotFoundError, ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    skeletons = document.get("skeletons")
    found = skeletons.get(field_name) if isinstance(skeletons, dict) else None
    found = found or document.get("default_skeleton")
    return found if isinstance(found, dict) else {}
