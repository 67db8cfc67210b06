"""Recognise lists of images by what their lines name, and folders of classes below folders that are none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardmill.beam_jobs.config import SourceConfig
from shardmill.beam_jobs.sources.class_names import quoted
from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from shardmill.beam_jobs.sources.kinds.lists.found_lists import (
    MOST_BYTES,
    NO_LIST,
    NUMBER,
    OF_NAMES,
    FoundList,
    found_lists,
    texts_of_more,
)
from shardmill.beam_jobs.sources.kinds.lists.places import class_places, inner_places, stem_places
from shardmill.beam_jobs.sources.kinds.lists.reading import first_code, plain_number, read_names
from shardmill.beam_jobs.sources.recognition.frames import find_frames
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised, cli_for
from shardmill.beam_jobs.sources.recognition.naming import ANYWHERE, NamedImages
from shardmill.beam_jobs.sources.roles import is_place, split_of_words, words_of
from shardmill.infra.errors import ConfigError

_SYNSET = re.compile(r"n\d{8}")


@dataclass
class _Reading:
    """Lists that together label images.

    Attributes:
        lists: the lists.
        note: about lists that are left out, as the end of a sentence.
    """

    lists: list[FoundList] = field(default_factory=list)
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
    lists = found_lists(glance, named)
    telling = [one for one in lists if one.label is not None and not _repeats(one, places)]
    if {one.split for one in telling} == {"test"} and not places:
        telling = []  # what is to be answered: the images of the training are labelled elsewhere
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
        splits = {one.split for one in splitting}
        if None in splits or splits > {"train"}:
            reading.lists += splitting
    is_labelled = any(one.label is not None for one in reading.lists)
    if not is_labelled and named.mask_beside() is not None:
        return None
    if not places and not is_labelled:
        return _by_stems(stem_places(named.images), named)
    inner = None if is_labelled or _are_of_videos(named.images) else inner_places(named.images, places)
    if inner is not None:
        return _by_either(places, inner, named)
    if not is_labelled and (texts := texts_of_more(glance, named, lists)):
        return _by_either(places, {}, named, f"; {quoted(texts)} tell more of the images, and are not read")
    if not _is_for_lists(reading, places, named.images):
        return None
    return _recognised(glance, reading, places, named)


def _are_of_videos(images: Sequence[str]) -> bool:
    """Tell whether the innermost folders are videos, with their frames, and lie in folders of classes."""
    frames = find_frames(images)
    if frames is None or not frames.is_certain or not all(video.endswith("/") for video in frames.videos):
        return False
    return not any(is_place(part) for video in frames.videos for part in video.split("/")[1:-2])


def _is_for_lists(reading: _Reading, places: Mapping[str, str | None], images: Sequence[str]) -> bool:
    """Tell whether neither a single table nor folders of classes on top tell as much."""
    labelled = [one for one in reading.lists if one.label is not None]
    if not labelled:
        if reading.lists:
            return bool(places)
        is_deep = any(place.lower() not in SPLIT_OF_FOLDER for place in places)
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
    places: Mapping[str, str | None], inner: Mapping[str, str | None], named: NamedImages, more: str = ""
) -> Recognised:
    ways = [
        cli_for("lists", {"options": {"folders": {place: split or "" for place, split in some.items()}}})
        for some in (places, inner)
        if some
    ]
    if "" in places:
        ways[0] = cli_for("image_folder", {"layout": "classes"})
    ways.append(f"{cli_for('image_folder', {'labels': 'none'})} if the images have no labels")
    why = f"the folders in {quoted([place or '.' for place in places])} may be classes"
    why += ", or those in them" if inner else more
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


def _class_by_folder(uri: str, places: Mapping[str, str | None]) -> str | None:
    """Return the class folder of an image; None if it lies in none."""
    for place in places:
        start = f"{place}/" if place else ""
        if uri.startswith(start) and "/" in uri[len(start) :]:
            return uri[len(start) :].split("/")[0]
    return None


def _repeats(one: FoundList, places: Mapping[str, str | None]) -> bool:
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


def _readings(lists: Sequence[FoundList]) -> list[_Reading]:
    """Return the ways to label images: lists of the same form and different splits belong together."""
    families: dict[tuple[str, str], list[FoundList]] = {}
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


def _of_family(family: Sequence[FoundList]) -> _Reading:
    """Choose among lists of one form: not trainval beside train and val, and the first of train1 to 10."""
    splits = {one.split for one in family}
    words = {one.uri: one.stem.lower() for one in family}
    if {"train", "validation"} <= splits:
        family = [one for one in family if "trainval" not in words[one.uri].replace("_", "")]
    by_split: dict[tuple[str | None, object], list[FoundList]] = {}
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
        words = {NUMBER.sub("", word) for word in words_of(name)}
        if not words & OF_NAMES or NO_LIST.search(name):
            continue
        try:
            names, _ = read_names(glance.head(uri, MOST_BYTES), name, labels)
        except ConfigError:
            continue
        if set(names.values()) != labels and not all(name.isdigit() for name in names.values()):
            return uri
    return None
