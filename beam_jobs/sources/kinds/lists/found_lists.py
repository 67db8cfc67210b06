"""The lists of a source: files whose lines name images, and what their columns give besides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from shardmill.beam_jobs.sources.kinds.lists.matlab import rows_of_matlab
from shardmill.beam_jobs.sources.kinds.lists.reading import is_set, lines_of, rows_of_json
from shardmill.beam_jobs.sources.kinds.table.delimited import DELIMITERS
from shardmill.beam_jobs.sources.recognition.glance import IMAGE_ENDINGS, Glance
from shardmill.beam_jobs.sources.recognition.naming import (
    NamedImages,
    Place,
    has_other_target,
    image_columns,
    label_column,
)
from shardmill.beam_jobs.sources.roles import is_place, split_of_words, words_of
from shardmill.infra.errors import ConfigError

_ENDINGS = (".txt", ".csv", ".tsv", ".lst", ".list", ".json", ".mat")
_MOST_LISTS, _MOST_LEVELS = 80, 4
_HEAD_BYTES, MOST_BYTES = 1 << 16, 1 << 27
_MOST_TITLES = 2  # lines before the first image
_ROWS_TRIED = 6
_ROWS_LOOKED_AT = 100
_FLAGS = frozenset({"-1", "0", "1", "0.0", "1.0"})
_PARTS = {"0": "train", "1": "validation", "2": "test"}  # of CelebA's list_eval_partition.txt
_IS_TRAIN = {"1": "train", "0": "test"}  # of CUB's train_test_split.txt
_PART = {"tr": "train", "va": "validation", "ts": "test", "te": "test"}  # of trnid, valid and tstid
_OF_PARTS = frozenset({"split", "splits", "partition"})
_NAMED_PARTS = ("train", "val", "test")  # of the list_eval_partition.txt of DeepFashion
_GROUPS = ("lesion_id", "patient_id", "patientid", "patient id", "subject_id", "person_id")
NO_LIST = re.compile(r"readme|licen[cs]e|submi|requirements|changelog", re.IGNORECASE)
OF_NAMES = frozenset({
    "class", "classes", "category", "categories", "synset", "synsets", "words", "names", "labels", "label",
    "meta",
})  # fmt: skip
NUMBER = re.compile(r"\d+$")
_IN_QUOTES = re.compile(r'"([^"\\]+)"')


@dataclass(frozen=True)
class FoundList:
    """A list of the source.

    Attributes:
        uri: the file.
        option: an ImageList as it is set.
        rows: its first lines, as values.
        labels: classes in these lines.
        images: URIs of the images of some of these lines.
    """

    uri: str
    option: Mapping[str, Any]
    rows: Sequence[Sequence[str]]
    labels: Sequence[str] = ()
    images: Sequence[str] = ()

    @property
    def split(self) -> str | None:
        """The split of all of its images."""
        found: str | None = self.option.get("split")
        return found

    @property
    def label(self) -> int | str | None:
        """What gives the classes of its images."""
        found: int | str | None = self.option.get("label")
        return found

    @property
    def stem(self) -> str:
        """Its name without ending and number."""
        return NUMBER.sub("", self.uri.rpartition("/")[2].rpartition(".")[0])

    def without_split(self) -> FoundList:
        """Return the list with the split left open."""
        return replace(self, option={name: value for name, value in self.option.items() if name != "split"})

    @property
    def has_flags(self) -> bool:
        """Whether an image can have several classes, or has several in the first lines."""
        return any("|" in label for label in self.labels) or (
            self.label == "columns"
            and any(sum(map(is_set, row[self.option.get("image", 1) :])) != 1 for row in self.rows)
        )


def found_lists(glance: Glance, named: NamedImages) -> list[FoundList]:
    """Return the lists of a source."""
    lists = [one for uri in _candidates(glance, named) if (one := _list(glance, uri, named)) is not None]
    return _with_ids(glance, lists)


def texts_of_more(glance: Glance, named: NamedImages, lists: Sequence[FoundList]) -> list[str]:
    """Return the texts that name images, and are no lists: with boxes (WIDER FACE) or points (WFLW)."""
    known = {uri for one in lists for uri in (one.uri, one.option.get("ids"))}
    found = []
    for uri in _candidates(glance, named):
        if uri in known or uri.lower().endswith(".mat"):
            continue
        if uri.lower().endswith(".json"):
            text = glance.head(uri, _HEAD_BYTES).decode("utf-8", "replace")
            names = {name.rpartition("/")[2] for name in _IN_QUOTES.findall(text)}
        else:
            rows = _cut(glance, uri)[1][:_ROWS_LOOKED_AT]
            names = {row[at].strip().rpartition("/")[2] for row in rows for at in (0, -1)}
        if sum(named.has(name) for name in names if name.lower().endswith(IMAGE_ENDINGS)) > 1:
            found.append(uri)
    return found


def _candidates(glance: Glance, named: NamedImages) -> list[str]:
    """Return files that may be lists: none of one image, or of a class (n01443537/n01443537_boxes.txt)."""
    found = []
    for uri in glance.ending_in(*_ENDINGS):
        folder, _, name = uri.rpartition("/")
        own = folder.rpartition("/")[2]
        of_class = own != "" and not is_place(own) and own.lower() in name.lower()
        if (
            uri.count("/") <= _MOST_LEVELS
            and not NO_LIST.search(name)
            and not of_class
            and not named.has(name.rpartition(".")[0])
        ):
            found.append(uri)
    return found[:_MOST_LISTS]


def _list(glance: Glance, uri: str, named: NamedImages) -> FoundList | None:
    """Return a file as a list, if its lines name images."""
    if uri.lower().endswith(".json"):
        return _json_list(glance, uri, named)
    separator, rows = _cut(glance, uri)
    if rows and len(rows[0]) == 1 and (uri.lower().endswith(".mat") or "ground_truth" in uri):
        return _in_order(glance, uri, rows, named)
    for skip in range(min(len(rows), _MOST_TITLES + 1)):
        some = rows[skip : skip + _ROWS_TRIED]
        for at in image_columns(some):
            split = split_of_words(uri.rpartition("/")[2])
            if (place := named.place_of([row[at].strip() for row in some], split)) is not None:
                if skip and any(named.has(title.strip()) for title in rows[skip - 1]):
                    return None  # lines name images more than once
                option: dict[str, Any] = {"file": uri}
                option |= {"separator": separator} if separator is not None else {}
                option |= {"skip": skip} if skip else {}
                option |= {"image": at + 1} if at else {}
                option |= {"images": place.folder} if place.folder else {}
                return _understood(glance, uri, option, rows, place)
    return None


def _in_order(glance: Glance, uri: str, rows: list[list[str]], named: NamedImages) -> FoundList | None:
    """Return a list with a line for each image of one folder, in the order of their names."""
    for folder in dict.fromkeys(uri.rpartition("/")[0] for uri in named.images):
        prefix = f"{folder}/" if folder else ""
        names = [name for name in glance.folder.names(prefix)[0] if name.lower().endswith(IMAGE_ENDINGS)]
        if len(names) != len(rows) or len(rows) < 2:
            continue
        option: dict[str, Any] = {"file": uri, "image": 0} | ({"images": folder} if folder else {})
        images = [f"{prefix}{name}" for name in names[:_ROWS_TRIED]]
        values = [row[0] for row in rows]
        if all(value.lstrip("-").isdigit() for value in values):
            split = split_of_words(folder)
            option |= {"label": 1} | ({"split": split} if split is not None else {})
            return FoundList(uri, option, rows, values, images)
        parts = {value: _PART[value[:2]] for value in set(values) if value[:2] in _PART}
        if set(values) <= parts.keys():
            return FoundList(uri, option | {"splits": parts}, rows, (), images)
    return None


def _cut(glance: Glance, uri: str) -> tuple[str | None, list[list[str]]]:
    """Return the separator and the first lines of a text, as values; none if it is no text."""
    if uri.lower().endswith(".mat"):
        try:
            return None, rows_of_matlab(glance.head(uri, MOST_BYTES))
        except ValueError:
            return None, []
    head = glance.head(uri, MOST_BYTES if "ground_truth" in uri else _HEAD_BYTES)
    try:
        text = (head[: head.rfind(b"\n")] if len(head) == _HEAD_BYTES else head).decode("utf-8-sig")
    except UnicodeDecodeError:
        return None, []
    first = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    separator = max((mark for mark in DELIMITERS if mark in first), key=first.count, default=None)
    if not uri.lower().endswith((".csv", ".tsv")) and separator == "\t":
        separator = None if len(first.split()) == first.count("\t") + 1 else separator
    try:
        return separator, [row for _, row in lines_of(text, separator)]
    except ConfigError:
        return separator, []


def _understood(
    glance: Glance, uri: str, option: dict[str, Any], rows: list[list[str]], place: Place
) -> FoundList | None:
    """Add what a list gives besides images: classes, splits, groups; None for a list of one class."""
    skip, image = option.get("skip", 0), option.get("image", 1)
    titles, rows = rows[skip - 1] if skip else [], rows[skip:]
    width = len(rows[0])
    behind = [value for row in rows for value in row[image:]]
    others = [at for at in range(width) if at != image - 1]
    folder, _, name = uri.rpartition("/")
    split = split_of_words(name)
    if split is None and place.folder == folder:  # train/_classes.csv beside its images
        split = split_of_words(folder.rpartition("/")[2])
    is_titled = len(titles) == width
    if len(others) == 1 and (splits := _splits_in(behind, name, titles[others[0]] if is_titled else "")):
        return FoundList(uri, option | {"splits": splits}, rows)
    label: int | str | None = None
    if width - image > 1 and set(behind) <= _FLAGS and len(titles) >= width - image:
        label = "columns"
    elif titles:
        at = label_column(titles, rows, image - 1) if is_titled else None
        label = None if at is None or has_other_target(glance, titles, titles[at]) else at + 1
    elif others and sum(not _is_number(rows[0][at]) for at in others) < 2:
        at = next((at for at in others if at >= image), others[0])
        values = [row[at] for row in rows if len(row) > at]
        if "-1" in values and set(values) <= _FLAGS:
            return None  # of one class, as those of Pascal VOC
        is_key = at < image and len(set(values)) == len(values)
        label = at + 1 if not is_key and not _are_counted(values) else None
    folders = [row[image - 1].split("/")[-2:-1] for row in rows if len(row) >= image]
    if label is None and not titles and all(folder and not is_place(folder[0]) for folder in folders):
        label = "folder"
    option |= {"label": label} if label is not None else {}
    option |= {"split": split} if split is not None else {}
    keys = [at for at, name in enumerate(titles) if is_titled and name.lower() in _GROUPS]
    option |= {"group": keys[0] + 1} if keys else {}
    labels = [folder[0] for folder in folders] if label == "folder" else []
    if isinstance(label, int):
        labels = [row[label - 1].strip() for row in rows if len(row) >= label]
    return FoundList(uri, option, rows, labels, place.images)


def _splits_in(values: Sequence[str], name: str, title: str) -> Mapping[str, str]:
    """Return the splits that values stand for, of the only column beside the images; none if for others."""
    if {*words_of(name), title.lower()} & _OF_PARTS and set(values) <= _PARTS.keys():
        return _PARTS
    if not values or not set(values) <= SPLIT_OF_FOLDER.keys():
        return {}
    return {value: SPLIT_OF_FOLDER[value] for value in sorted({*_NAMED_PARTS, *values})}


def _is_number(value: str) -> bool:
    return value.strip().lstrip("-").replace(".", "", 1).isdecimal()


def _are_counted(values: Sequence[str]) -> bool:
    """Tell whether values are the numbers of the lines."""
    first = values[0] if values else ""
    return (
        len(values) > 1 and first.isdigit() and values == [str(int(first) + at) for at in range(len(values))]
    )


def _json_list(glance: Glance, uri: str, named: NamedImages) -> FoundList | None:
    """Return a JSON file that gives images categories without boxes, as those of iNaturalist."""
    text = glance.head(uri, MOST_BYTES)
    if b'"category_id"' not in text or b'"bbox"' in text or b'"segments_info"' in text:
        return None
    try:
        rows = [row for _, row in rows_of_json(text.decode("utf-8", "replace"), uri)]
    except ConfigError:
        return None
    place = named.place_of([row[0] for row in rows[:_ROWS_TRIED]])
    if place is None:
        return None
    option = {
        "file": uri,
        "label": 2,
        "images": place.folder,
        "split": split_of_words(uri.rpartition("/")[2]),
    }
    found = {name: value for name, value in option.items() if value not in ("", None)}
    return FoundList(uri, found, rows, [row[1] for row in rows], place.images)


def _with_ids(glance: Glance, lists: list[FoundList]) -> list[FoundList]:
    """Add lists whose lines begin with the number that another list gives an image, as those of CUB."""
    found: list[FoundList] = []
    for one in lists:
        if one.option.get("image") != 2 or one.option.get("skip"):
            found.append(one)
            continue
        folder = one.uri.rpartition("/")[0]
        more = []
        for uri in glance.ending_in(".txt"):
            words = set(words_of(uri.rpartition("/")[2]))
            rows = _cut(glance, uri)[1] if uri.rpartition("/")[0] == folder and uri != one.uri else []
            if not rows or [row[0] for row in rows[:_ROWS_TRIED]] != [
                row[0] for row in one.rows[:_ROWS_TRIED]
            ]:
                continue
            option = {"file": uri, "ids": one.uri, "images": one.option.get("images", "")}
            if words & _OF_PARTS and {row[-1] for row in rows} <= _IS_TRAIN.keys():
                more.append(FoundList(uri, option | {"splits": _IS_TRAIN}, rows))
            elif words & OF_NAMES and all(len(row) == 2 for row in rows):
                labels = [row[1] for row in rows]
                more.append(FoundList(uri, option | {"label": 2}, rows, labels, one.images))
        found += more if any(other.label is not None for other in more) else [one, *more]
    return found
