"""Recognise lists of images by what their lines name, and folders of classes below folders that are none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shardmill.beam_jobs.config import SourceConfig
from shardmill.beam_jobs.sources.class_names import quoted
from shardmill.beam_jobs.sources.kinds.lists.matlab import rows_of_matlab
from shardmill.beam_jobs.sources.kinds.lists.places import class_places, inner_places, stem_places
from shardmill.beam_jobs.sources.kinds.lists.reading import (
    first_code,
    is_set,
    lines_of,
    plain_number,
    read_names,
    rows_of_json,
)
from shardmill.beam_jobs.sources.kinds.table.delimited import DELIMITERS
from shardmill.beam_jobs.sources.recognition.glance import IMAGE_ENDINGS, Glance, Recognised, cli_for
from shardmill.beam_jobs.sources.recognition.naming import (
    ANYWHERE,
    NamedImages,
    Place,
    image_columns,
    label_column,
)
from shardmill.beam_jobs.sources.roles import is_place, split_of_words, words_of
from shardmill.infra.errors import ConfigError

_ENDINGS = (".txt", ".csv", ".tsv", ".lst", ".list", ".json", ".mat")
_NO_LIST = re.compile(r"readme|licen[cs]e|submi|requirements|changelog", re.IGNORECASE)
_MOST_LISTS, _MOST_LEVELS = 80, 4
_HEAD_BYTES, _MOST_BYTES = 1 << 16, 1 << 27
_MOST_TITLES = 2  # lines before the first image
_ROWS_TRIED = 6
_FLAGS = frozenset({"-1", "0", "1", "0.0", "1.0"})
_PARTS = {"0": "train", "1": "validation", "2": "test"}  # of CelebA's list_eval_partition.txt
_IS_TRAIN = {"1": "train", "0": "test"}  # of CUB's train_test_split.txt
_PART = {"tr": "train", "va": "validation", "ts": "test", "te": "test"}  # of trnid, valid and tstid
_OF_PARTS = frozenset({"split", "splits", "partition"})
_OF_NAMES = frozenset({
    "class", "classes", "category", "categories", "synset", "synsets", "words", "names", "labels", "label",
    "meta",
})  # fmt: skip
_GROUPS = ("lesion_id", "patient_id", "patientid", "patient id", "subject_id", "person_id")
_NUMBER = re.compile(r"\d+$")
_SYNSET = re.compile(r"n\d{8}")


@dataclass(frozen=True)
class _List:
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
        return _NUMBER.sub("", self.uri.rpartition("/")[2].rpartition(".")[0])

    def without_split(self) -> _List:
        """Return the list with the split left open."""
        return replace(self, option={name: value for name, value in self.option.items() if name != "split"})

    @property
    def has_flags(self) -> bool:
        """Whether an image can have several classes, or has several in the first lines."""
        return any("|" in label for label in self.labels) or (
            self.label == "columns"
            and any(sum(map(is_set, row[self.option.get("image", 1) :])) != 1 for row in self.rows)
        )


@dataclass
class _Reading:
    """Lists that together label images.

    Attributes:
        lists: the lists.
        note: about lists that are left out, as the end of a sentence.
    """

    lists: list[_List] = field(default_factory=list)
    note: str = ""

    def splits(self) -> set[str | None]:
        """Return the splits of the lists."""
        return {one.split for one in self.lists}


def recognise_lists(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Return the lists and folders that label the images of a source; None if there is nothing of the kind.

    A single table with a header is left to kind table, and class folders on top to kind image_folder.
    """
    if settings.labels not in (None, "class", "multi") or settings.layout != "auto" or not glance.images:
        return None
    named = NamedImages(glance)
    places = class_places(named.images)
    lists = [one for uri in _candidates(glance, named) if (one := _list(glance, uri, named)) is not None]
    lists = _with_ids(glance, lists)
    telling = [one for one in lists if one.label is not None and not _repeats(one, places)]
    readings = _readings(telling)
    if len(readings) > 1:
        if all(one.uri.lower().endswith((".csv", ".tsv")) for one in telling):
            return None
        return _several(readings, named)
    reading = readings[0] if readings else _Reading()
    covered = {uri.rpartition("/")[0] for one in reading.lists for uri in one.images}
    places = {
        place: split
        for place, split in places.items()
        if not any(_is_below(folder, [place]) or _is_below(place, [folder]) for folder in covered)
    }
    if reading.splits() == {"train"} and not places:  # no split for evaluation
        reading.lists = [one.without_split() for one in reading.lists]
    if all(one.split is None for one in reading.lists) and not any(places.values()):
        splitting = [one for one in lists if one.label is None and (one.split or "splits" in one.option)]
        if any(one.split in (None, "train") for one in splitting):
            reading.lists += splitting
    is_labelled = any(one.label is not None for one in reading.lists)
    if not is_labelled and named.mask_beside() is not None:
        return None
    if not places and not is_labelled:
        return _by_stems(stem_places(named.images), named)
    if not is_labelled and (inner := inner_places(named.images, places)) is not None:
        return _by_either(places, inner, named)
    if not _is_for_lists(reading, places, named.images):
        return None
    return _recognised(glance, reading, places, named)


def _is_for_lists(reading: _Reading, places: Mapping[str, str | None], images: Sequence[str]) -> bool:
    """Tell whether neither a single table nor folders of classes on top tell as much."""
    labelled = [one for one in reading.lists if one.label is not None]
    if not labelled:
        if reading.lists:
            return bool(places)
        is_deep = any("/" in place or (place and split is None) for place, split in places.items())
        unlabelled = any(uri.count("/") < 2 or uri.split("/", 1)[0] not in places for uri in images)
        classes = {_class_by_folder(uri, places) for uri in images} - {None}
        return len(classes) > 1 and "" not in places and (is_deep or unlabelled)
    if len(reading.lists) > 1 or places:
        return True
    (one,) = labelled
    is_table = one.uri.lower().endswith((".csv", ".tsv"))
    return not is_table or one.has_flags or one.label == "columns" or one.option.get("images") == ANYWHERE


def _by_stems(places: Sequence[str], named: NamedImages) -> Recognised | None:
    if not places:
        return None
    folders = {uri.rpartition("/")[0] for uri in named.images}
    why = f"names of images in {quoted(list(places))} begin with their classes"
    return Recognised(why, {"options": {"stems": list(places)}}, image_folders=folders)


def _by_either(
    places: Mapping[str, str | None], inner: Mapping[str, str | None], named: NamedImages
) -> Recognised:
    ways = [
        cli_for("lists", {"options": {"folders": {place: split or "" for place, split in some.items()}}})
        for some in (places, inner)
        if some
    ]
    if "" in places:
        ways[0] = cli_for("image_folder", {"layout": "classes"})
    ways.append(f"{cli_for('image_folder', {'labels': 'none'})} if the images have no labels")
    why = f"the folders in {quoted([place or '.' for place in places])} may be classes, or those in them"
    folders = {uri.rpartition("/")[0] for uri in named.images}
    return Recognised(why, image_folders=folders, readings=ways)


def _is_below(place: str, folders: Iterable[str]) -> bool:
    return any(not one or f"{place}/".startswith(f"{one}/") for one in folders)


def _recognised(
    glance: Glance, reading: _Reading, places: Mapping[str, str | None], named: NamedImages
) -> Recognised:
    labels = {first_code(label) for one in reading.lists for label in one.labels}
    labels |= {label for uri in named.images if (label := _class_by_folder(uri, places)) is not None}
    options: dict[str, Any] = {}
    why = []
    if reading.lists:
        options["lists"] = [dict(one.option) for one in reading.lists]
        why.append(f"{quoted([one.uri for one in reading.lists])} tell of images{reading.note}")
    if places:
        options["folders"] = {place: split or "" for place, split in places.items()}
        why.append(f"the folders in {quoted(list(places))} are classes")
    if (names := _names(glance, labels)) is not None:
        options["names"] = names
        why.append(f"{names} names them")
    several = {"labels": "multi"} if any(one.has_flags for one in reading.lists) else {}
    return Recognised(
        "; ".join(why),
        {"options": options, **several},
        is_certain=bool(reading.lists),
        image_folders={uri.rpartition("/")[0] for uri in glance.images},
    )


def _several(readings: Sequence[_Reading], named: NamedImages) -> Recognised:
    ways = [
        cli_for("lists", {"options": {"lists": [dict(one.option) for one in reading.lists]}})
        for reading in readings
    ]
    seen = " or ".join(quoted([one.uri for one in reading.lists]) for reading in readings)
    folders = {uri.rpartition("/")[0] for uri in named.images}
    return Recognised(
        f"classes may be those in {seen}", is_certain=True, image_folders=folders, readings=ways
    )


def _candidates(glance: Glance, named: NamedImages) -> list[str]:
    """Return files that may be lists: none of one image, or of a class (n01443537/n01443537_boxes.txt)."""
    found = []
    for uri in glance.ending_in(*_ENDINGS):
        folder, _, name = uri.rpartition("/")
        own = folder.rpartition("/")[2]
        of_class = own != "" and not is_place(own) and own.lower() in name.lower()
        if (
            uri.count("/") <= _MOST_LEVELS
            and not _NO_LIST.search(name)
            and not of_class
            and not named.has(name.rpartition(".")[0])
        ):
            found.append(uri)
    return found[:_MOST_LISTS]


def _list(glance: Glance, uri: str, named: NamedImages) -> _List | None:
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
                return _understood(uri, option, rows, place)
    return None


def _in_order(glance: Glance, uri: str, rows: list[list[str]], named: NamedImages) -> _List | None:
    """Return a list with a line for each image of one folder, in the order of their names."""
    for folder in dict.fromkeys(uri.rpartition("/")[0] for uri in named.images):
        prefix = f"{folder}/" if folder else ""
        names = [name for name in glance.folder.names(prefix)[0] if name.lower().endswith(IMAGE_ENDINGS)]
        if len(names) != len(rows):
            continue
        option: dict[str, Any] = {"file": uri, "image": 0} | ({"images": folder} if folder else {})
        images = [f"{prefix}{name}" for name in names[:_ROWS_TRIED]]
        values = [row[0] for row in rows]
        if all(value.lstrip("-").isdigit() for value in values):
            split = split_of_words(folder)
            option |= {"label": 1} | ({"split": split} if split is not None else {})
            return _List(uri, option, rows, values, images)
        parts = {value: _PART[value[:2]] for value in set(values) if value[:2] in _PART}
        if set(values) <= parts.keys():
            return _List(uri, option | {"splits": parts}, rows, (), images)
    return None


def _cut(glance: Glance, uri: str) -> tuple[str | None, list[list[str]]]:
    """Return the separator and the first lines of a text, as values; none if it is no text."""
    if uri.lower().endswith(".mat"):
        try:
            return None, rows_of_matlab(glance.head(uri, _MOST_BYTES))
        except ValueError:
            return None, []
    head = glance.head(uri, _MOST_BYTES if "ground_truth" in uri else _HEAD_BYTES)
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


def _understood(uri: str, option: dict[str, Any], rows: list[list[str]], place: Place) -> _List | None:
    """Add what a list gives besides images: classes, splits, groups; None for a list of one class."""
    skip, image = option.get("skip", 0), option.get("image", 1)
    titles, rows = rows[skip - 1] if skip else [], rows[skip:]
    width = len(rows[0])
    behind = [value for row in rows for value in row[image:]]
    others = [at for at in range(width) if at != image - 1]
    split = split_of_words(uri.rpartition("/")[2])
    is_titled = len(titles) == width
    words = set(words_of(uri.rpartition("/")[2])) | (
        {titles[others[0]].lower()} if is_titled and others else set()
    )
    if len(others) == 1 and words & _OF_PARTS and set(behind) <= _PARTS.keys():
        return _List(uri, option | {"splits": _PARTS}, rows)
    label: int | str | None = None
    if width - image > 1 and set(behind) <= _FLAGS and len(titles) >= width - image:
        label = "columns"
    elif titles:
        at = label_column(titles, rows, image - 1) if is_titled else None
        label = None if at is None else at + 1
    elif others:
        at = next((at for at in others if at >= image), others[0])
        values = [row[at] for row in rows if len(row) > at]
        if "-1" in values and set(values) <= _FLAGS:
            return None  # of one class, as those of Pascal VOC
        is_key = at < image and len(set(values)) == len(values)
        label = at + 1 if not is_key and not _are_counted(values) else None
    folders = [row[image - 1].split("/")[-2:-1] for row in rows if len(row) >= image]
    if label is None and all(folder and not is_place(folder[0]) for folder in folders):
        label = "folder"
    option |= {"label": label} if label is not None else {}
    option |= {"split": split} if split is not None else {}
    if (
        is_titled
        and (group := next((at for at, name in enumerate(titles) if name.lower() in _GROUPS), None))
        is not None
    ):
        option |= {"group": group + 1}
    labels: list[str] = []
    if isinstance(label, int):
        labels = [row[label - 1].strip() for row in rows if len(row) >= label]
    elif label == "folder":
        labels = [folder[0] for folder in folders]
    return _List(uri, option, rows, labels, place.images)


def _are_counted(values: Sequence[str]) -> bool:
    """Tell whether values are the numbers of the lines."""
    first = values[0] if values else ""
    return (
        len(values) > 1 and first.isdigit() and values == [str(int(first) + at) for at in range(len(values))]
    )


def _json_list(glance: Glance, uri: str, named: NamedImages) -> _List | None:
    """Return a JSON file that gives images categories without boxes, as those of iNaturalist."""
    text = glance.head(uri, _MOST_BYTES)
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
    return _List(uri, found, rows, [row[1] for row in rows], place.images)


def _with_ids(glance: Glance, lists: list[_List]) -> list[_List]:
    """Add lists whose lines begin with the number that another list gives an image, as those of CUB."""
    found: list[_List] = []
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
                more.append(_List(uri, option | {"splits": _IS_TRAIN}, rows))
            elif words & _OF_NAMES and all(len(row) == 2 for row in rows):
                labels = [row[1] for row in rows]
                more.append(_List(uri, option | {"label": 2}, rows, labels, one.images))
        found += more if any(other.label is not None for other in more) else [one, *more]
    return found


def _class_by_folder(uri: str, places: Mapping[str, str | None]) -> str | None:
    """Return the class folder of an image; None if it lies in none."""
    for place in places:
        start = f"{place}/" if place else ""
        if uri.startswith(start) and "/" in uri[len(start) :]:
            return uri[len(start) :].split("/")[0]
    return None


def _repeats(one: _List, places: Mapping[str, str | None]) -> bool:
    """Tell whether a list says what the folders of its images say."""
    by_folder = [_class_by_folder(uri, places) for uri in one.images]
    splits = {split for place, split in places.items() if any(_is_below(uri, [place]) for uri in one.images)}
    if one.split is not None and splits != {one.split}:
        return False
    labels = [first_code(label) for label in one.labels[: len(by_folder)]]
    return (
        bool(by_folder)
        and None not in by_folder
        and [plain_number(label) for label in labels] == [plain_number(str(folder)) for folder in by_folder]
    )


def _readings(lists: Sequence[_List]) -> list[_Reading]:
    """Return the ways to label images: lists of the same form and different splits belong together."""
    families: dict[tuple[str, str], list[_List]] = {}
    for one in lists:
        form = "".join(
            word for word in re.split(r"[_\-. ]+", one.stem.lower()) if split_of_words(word) is None
        )
        families.setdefault((one.uri.rpartition("/")[0], form), []).append(one)
    readings = [_of_family(family) for family in families.values()]
    if any(None not in reading.splits() for reading in readings):
        readings = [reading for reading in readings if reading.splits() != {None}]
    if flags := [one for one in readings if any(each.label == "columns" for each in one.lists)]:
        readings = flags
    joined: list[_Reading] = []
    for reading in readings:
        fitting = next((other for other in joined if not other.splits() & reading.splits()), None)
        if fitting is None:
            joined.append(reading)
        else:
            fitting.lists += reading.lists
    return joined


def _of_family(family: Sequence[_List]) -> _Reading:
    """Choose among lists of one form: not trainval beside train and val, and the first of train1 to 10."""
    splits = {one.split for one in family}
    words = {one.uri: one.stem.lower() for one in family}
    if {"train", "validation"} <= splits:
        family = [one for one in family if "trainval" not in words[one.uri].replace("_", "")]
    by_split: dict[tuple[str | None, object], list[_List]] = {}
    for one in family:
        by_split.setdefault((one.split, one.option.get("images")), []).append(one)
    chosen, dropped = [], 0
    for alternatives in by_split.values():
        alternatives.sort(key=lambda one: (len(one.uri), one.uri))
        numbered = len({one.stem for one in alternatives}) == 1 and alternatives[0].split is not None
        chosen += alternatives[:1] if numbered else alternatives
        dropped = max(dropped, len(alternatives) - 1 if numbered else 0)
    note = f", the first of {dropped + 1} divisions" if dropped else ""
    return _Reading(chosen, note)


def _names(glance: Glance, labels: set[str]) -> str | None:
    """Return the file with the names of classes that are numbers or codes of synsets."""
    if not labels or not all(label.isdigit() or _SYNSET.fullmatch(label) for label in labels):
        return None
    for uri in glance.ending_in(".txt", ".names", ".mat"):
        name = uri.rpartition("/")[2]
        words = {_NUMBER.sub("", word) for word in words_of(name)}
        if not words & _OF_NAMES or _NO_LIST.search(name):
            continue
        try:
            names, _ = read_names(glance.head(uri, _MOST_BYTES), name, labels)
        except ConfigError:
            continue
        if set(names.values()) != labels and not all(name.isdigit() for name in names.values()):
            return uri
    return None
