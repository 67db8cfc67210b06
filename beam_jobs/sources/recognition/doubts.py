"""What speaks against taking the folders of a source for classes: their names, and what lies beside them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from shardmill.beam_jobs.config import SourceConfig
from shardmill.beam_jobs.sources.class_names import NO_CLASSES, plain_name, quoted
from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from shardmill.beam_jobs.sources.kinds.table.recognising import TABLE_ENDINGS
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised, cli_for
from shardmill.beam_jobs.sources.recognition.naming import NamedImages
from shardmill.beam_jobs.sources.roles import is_place, split_of_words

_SHOWN = 2  # tables


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
    if len(names) == 1 or all(map(is_place, names)) or mask is not None:
        strange = names
    if names and not strange:
        return by_folders
    why = f"its {'folder' if len(strange) == 1 else 'folders'} {quoted(strange)} would be classes"
    layout = {"layout": "splits" if depth else "classes"}
    readings = [f"{cli_for('image_folder', layout)} if so"] if names else []
    why += f", and {mask} is named like a mask" if mask is not None else ""
    why = why if names else "its folders are splits, and hold no folders of classes"
    for name in strange if not depth else ():
        place, below = _classes_below(name, glance)
        if below:
            readings.append(
                f"give {glance.folder.uri}/{place} as the source if {quoted(below)} are the classes"
            )
    readings.append(f"{cli_for('image_folder', {'labels': 'none'})} if the images have no labels")
    readings += _of_others(glance, strange, kinds)
    return replace(by_folders, why=why, readings=readings)


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
    for uri in glance.ending_in(*TABLE_ENDINGS)[: _SHOWN if "table" not in known else 0]:
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
