"""What speaks against taking the folders of a source for classes: their names, and what lies beside them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from shardmill.beam_jobs.config import SourceConfig
from shardmill.beam_jobs.sources.class_names import NO_CLASSES, plain_name, quoted
from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from shardmill.beam_jobs.sources.kinds.table.recognising import TABLE_ENDINGS
from shardmill.beam_jobs.sources.recognition.frames import FrameNames, find_frames
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised, cli_for
from shardmill.beam_jobs.sources.recognition.naming import OF_LABELS, SUBMISSION, NamedImages
from shardmill.beam_jobs.sources.roles import is_place, split_of_words, words_of

_SHOWN = 2  # tables
_BESIDE = (".txt", ".json", ".xml", ".csv", ".mat", ".npy", ".pts")  # files that say something of an image
_OF_NO_IMAGES = frozenset({"readme", "license", "licence", "classes", "names", "requirements"})
_OF_IMAGES = frozenset({"image", "images", "img", "imgs"})
_PART = re.compile(r"(.*(?<![a-z]))?(part|batch|chunk|shard|patch|subset|fold)s?[_ -]?\d+")
_PAIRS = frozenset({
    "left", "right", "hr", "lr", "input", "target", "rgb", "depth", "noisy", "clean", "blur", "sharp",
})  # fmt: skip
_WORD_END = re.compile(r"([a-zA-Z])(?=[A-Z][a-z])")


def with_doubts(
    by_folders: Recognised, kinds: Collection[str], glance: Glance, settings: SourceConfig
) -> Recognised:
    """Add to folders of classes what else they may be, if they are hardly classes.

    Args:
        by_folders: they were recognised.
        kinds: all that were recognised.
        glance: at the source.
        settings: of the source; if they say that folders are classes, or that there are none, they are right.
    """
    if settings.label_kind != "class" or settings.layout != "auto":
        return by_folders
    depth, names = _class_folders(glance)
    strange = [name for name in names if plain_name(name) in NO_CLASSES]
    like_splits = [name for name in names if split_of_words(name) is not None]
    if len(like_splits) > 1:
        strange = like_splits
    mask = NamedImages(glance).mask_beside()
    frames = find_frames(glance.images)
    one_video = frames is not None and frames.is_certain and _are_videos(frames, depth, names)
    if one_video or len(names) == 1 or all(map(is_place, names)) or mask is not None:
        strange = names
    if names and not strange:
        return by_folders
    why = f"its {'folder' if len(strange) == 1 else 'folders'} {quoted(strange)} would be classes"
    layout = {"layout": "splits" if depth else "classes"}
    readings = [f"{cli_for('image_folder', layout)} if so"] if names else []
    why += f", and {mask} is named like a mask" if mask is not None else ""
    why += ", and the images of each are frames of one video" if one_video else ""
    why = why if names else "its folders are splits, and hold no folders of classes"
    for name in strange if not depth else ():
        place, below = _classes_below(name, glance)
        if below:
            readings.append(
                f"give {glance.folder.uri}/{place} as the source if {quoted(below)} are the classes"
            )
    grouped = f" {frames.setting}" if frames is not None and one_video else ""
    readings.append(f"{cli_for('image_folder', {'labels': 'none'})}{grouped} if the images have no labels")
    readings += _of_others(glance, strange, kinds)
    return replace(by_folders, why=why, readings=readings)


def with_evidence(kind: str, by_folders: Recognised, glance: Glance) -> Recognised:
    """Let the user say whether folders are classes, if files in them or beside them speak against it.

    Args:
        kind: that recognised the folders.
        by_folders: what it recognised.
        glance: at the source.
    """
    layout = {"layout": "splits" if _class_folders(glance)[0] else "classes"}
    found: dict[str, Any] = dict(by_folders.settings) or layout
    options = found.get("options", {})
    why = _against(glance, options.get("folders", {"": ""}))
    if by_folders.readings or "stems" in options or why is None:
        return by_folders
    readings = [
        f"{cli_for(kind, found)} if the folders are the classes",
        f"{cli_for('image_folder', {'labels': 'none'})} if the images have no labels",
    ]
    return replace(by_folders, why=f"{by_folders.why}, but {why}", readings=readings)


def doubt_of_members(names: Sequence[str], glance: Glance, settings: SourceConfig) -> str | None:
    """Return what speaks against taking the folders in an archive for classes, in words; None if nothing.

    Args:
        names: of its members.
        glance: at the source.
        settings: of the source.
    """
    files = [
        name for name in names if not any(part.startswith((".", "__MACOSX")) for part in name.split("/"))
    ]
    if len({name.partition("/")[0] if "/" in name else "" for name in files} | {""}) == 2:
        files = [name.partition("/")[2] for name in files if "/" in name]
    inside = Glance(glance.folder, sorted(files))
    images = set(map(_sample_of, inside.images))
    beside = set(map(_sample_of, set(files) - set(inside.images)))
    if not any("/" in name for name in inside.images) or len(images & beside) * 2 >= len(images):
        return None  # without folders, or with sidecars as in WebDataset
    for name in inside.ending_in(*_BESIDE, *TABLE_ENDINGS, ".yaml"):
        words = set(words_of(name.rpartition("/")[2]))
        if not words & _OF_NO_IMAGES:
            return f"{name} tells more of the images, and is not read"
    seen = with_doubts(Recognised("its folders would be classes"), (), inside, settings)
    seen = with_evidence("image_folder", seen, inside)
    return seen.why if seen.readings else None


def _sample_of(name: str) -> str:
    folder, _, last = name.rpartition("/")
    return f"{folder}/{last.partition('.')[0]}"


def _against(glance: Glance, places: Iterable[str]) -> str | None:
    """Return what speaks against taking the folders in some places for classes, in words; None if nothing."""
    images = glance.images
    of_labels = (uri for uri in images if any(plain_name(part) in OF_LABELS for part in uri.split("/")[:-1]))
    if (one := next(of_labels, None)) is not None:
        return f"{one} lies in a folder for labels"
    stems = {uri.rpartition(".")[0] for uri in images}
    beside = [uri for uri in glance.ending_in(*_BESIDE) if uri.rpartition(".")[0] in stems]
    if len(beside) > 1 and len(beside) * 2 >= len(stems):
        return f"{beside[0]} tells more of an image, and is not read"
    for place in places:
        start = f"{place}/" if place else ""
        inside = [uri[len(start) :] for uri in images if uri.startswith(start) and "/" in uri[len(start) :]]
        names = sorted({uri.partition("/")[0] for uri in inside})
        words = [set(words_of(_WORD_END.sub(r"\1 ", name))) for name in names]
        if any(each & _OF_IMAGES for each in words) and any(each & OF_LABELS for each in words):
            return f"{quoted(names)} sound like images and labels of them"
        if _are_parts(names, inside):
            return f"{quoted(names)} seem to be parts of one folder"
        frames = find_frames(inside)
        if frames is not None and frames.is_certain and _are_videos(frames, 0, names):
            return f"images such as {start}{inside[0]} are named like frames of a video"
        if names and {name.lower() for name in names} <= _PAIRS:
            return f"{quoted(names)} sound like versions of the same images"
        named = [
            uri for uri in glance.ending_in(*_BESIDE) if uri.rpartition("/")[2].rpartition(".")[0] in names
        ]
        if len(named) > 1:
            return f"{named[0]} is named like the folder, and is not read"
        if (one := _labels_within(names, start, glance)) is not None:
            return f"{one} tells more of the images beside it, and is not read"
    return None


def _labels_within(names: Sequence[str], start: str, glance: Glance) -> str | None:
    """Return a file within folders that is named like labels of their images, as those of trackers are."""
    images = set(glance.images)
    for uri in glance.files:
        folder, *parts = uri.removeprefix(start).split("/")
        if uri.startswith(start) and parts and folder in names and uri not in images:
            stems = {plain_name(part.partition(".")[0]) for part in parts}
            if stems & OF_LABELS:
                return uri
    return None


def _are_parts(names: Sequence[str], images: Sequence[str]) -> bool:
    """Tell whether folders seem to be parts of one: numbered, or with images that are numbered through."""
    if len(names) < 2:
        return False
    plain = [plain_name(name) for name in names]
    if all(_PART.fullmatch(name.lower()) for name in names):
        return True
    if len(set(plain)) == 1 and plain[0] in (name.lower() for name in names):
        return True
    numbers: dict[str, list[int]] = {name: [] for name in names}
    for uri in images:
        folder, stem = uri.partition("/")[0], uri.rpartition("/")[2].rpartition(".")[0]
        if not (folder.isdecimal() and stem.isdecimal() and len(stem) >= len(folder) > 2):
            return False
        numbers[folder].append(int(stem))
    ends = [(min(some), max(some)) for _, some in sorted(numbers.items())]
    return all(one[1] < other[0] for one, other in pairwise(ends))


def _are_videos(frames: FrameNames, depth: int, names: list[str]) -> bool:
    """Tell whether each class folder holds the frames of one video, and nothing else is in it."""
    found = [video.split("/")[depth] for video in frames.videos if video.count("/") > depth]
    return len(found) == len(frames.videos) and sorted(found) == names


def _class_folders(glance: Glance) -> tuple[int, list[str]]:
    """Return the depth of the class folders, 1 below folders of splits, and their names."""
    parts = [uri.split("/") for uri in glance.files]
    tops = {uri.partition("/")[0] for uri in glance.images if "/" in uri}
    depth = int(bool(tops) and all(top.lower() in SPLIT_OF_FOLDER for top in tops))
    return depth, sorted({part[depth] for part in parts if len(part) > depth + 1})


def _classes_below(folder: str, glance: Glance) -> tuple[str, list[str]]:
    """Return the first folder with folders that may be classes or splits of them, and their names."""
    place = [folder]
    while True:
        inside = [
            uri.split("/")[len(place) :] for uri in glance.images if uri.startswith("/".join(place) + "/")
        ]
        below = sorted({parts[0] for parts in inside if len(parts) > 1})
        are_deep = any(len(parts) > 2 for parts in inside)
        if len(below) == 1 and are_deep and plain_name(below[0]) in NO_CLASSES - SPLIT_OF_FOLDER.keys():
            place.append(below[0])
            continue
        if not are_deep and all(plain_name(name) in SPLIT_OF_FOLDER for name in below):
            below = []
        return "/".join(place), below


def _of_others(glance: Glance, strange: list[str], known: Collection[str]) -> list[str]:
    """Return the settings for tables, annotations and masks beside the images that no kind recognised."""
    readings = []
    tables = [uri for uri in glance.ending_in(*TABLE_ENDINGS) if not SUBMISSION.search(uri)]
    tables.sort(key=lambda uri: split_of_words(uri) == "test")
    for uri in tables[: _SHOWN if "table" not in known else 0]:
        columns = {"image": "COLUMN", "label": "COLUMN"}
        readings.append(
            f"{cli_for('table', {'table': {'file': uri}, 'columns': columns})} if {uri} names the images"
        )
    for kind, ending in (("voc", ".xml"), ("coco", ".json")):
        folders = sorted({uri.rpartition("/")[0] for uri in glance.ending_in(ending)})
        if folders and kind not in known:
            place = f"{folders[0]}/*{ending}".lstrip("/")
            settings = {"file": place, "images": "FOLDER"}
            readings.append(f"{cli_for(kind, {'objects': {'annotations': [settings]}})} if {place} has boxes")
    kinds: dict[str, set[str]] = {}
    for uri in glance.images:
        folder, _, name = uri.rpartition("/")
        for part in {part for part in folder.split("/") if part in strange}:
            kinds.setdefault(part, set()).add(name.rpartition(".")[0])
    masks = [
        name for name in kinds if plain_name(name) in ("label", "labels", "mask", "annotation", "annotations")
    ]
    for name in masks:
        images = next((other for other in kinds if other not in masks and kinds[other] & kinds[name]), None)
        if images is not None:
            named = {"images": images, "masks": name, "classes": ["NAME"]}
            readings.append(f"{cli_for('masks', {'masks': named})} if {name} holds masks")
    return readings
