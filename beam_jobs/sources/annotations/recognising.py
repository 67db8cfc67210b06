"""Recognise annotation files by how they begin, and the folder that their images lie in."""

from __future__ import annotations

import re

from beam_jobs.sources.classes.names import quoted
from beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from beam_jobs.sources.recognition.glance import Glance, Recognised

_HEAD_BYTES = 1 << 16
_MAX_FILES = 20  # that are looked into
_WORD = re.compile(r"[a-z]+")
_IMAGE_SETS = ("ImageSets/Main/train.txt", "ImageSets/Segmentation/train.txt")
_COCO = re.compile(rb'\A\s*\{.*?"(images|annotations|categories)"\s*:\s*\[', re.DOTALL)
_COCO_NAME = re.compile(rb'"file_name"\s*:\s*"([^"]+)"')
_VOC = re.compile(rb"\A\s*(<\?xml[^>]*>\s*)?<annotation\b")
_VOC_NAME = re.compile(rb"<filename>\s*([^<]+?)\s*</filename>")


def recognise_coco(glance: Glance) -> Recognised | None:
    """Return the JSON file that names images as COCO does, or several whose names give different splits.

    ``instances_train2017.json`` and ``instances_val2017.json`` are such. Files of captions and key points
    beside them are left out.
    """
    found = _beginning_with(_COCO, glance, ".json")
    if len(found) > 1:
        found = {uri: head for uri, head in found.items() if _name(uri).startswith("instances")} or found
    if not found or not glance.images:
        return None
    parts: list[dict[str, str | None]] = [
        {"file": uri, "images": _folder_of(_COCO_NAME.search(head), glance)} for uri, head in found.items()
    ]
    why = f"{quoted(list(found))} {'lists' if len(found) == 1 else 'list'} images as COCO does"
    if len(found) > 1:
        splits = [_split_of(uri) for uri in found]
        if None in splits or len(set(splits)) < len(splits):
            return None
        parts = [{**part, "split": split} for part, split in zip(parts, splits, strict=True)]
        why += ", and their names give the splits"
    return Recognised(why, {"objects": {"annotations": tuple(parts)}})


def recognise_voc(glance: Glance) -> Recognised | None:
    """Return the folder of XML files that describe images as Pascal VOC does; None if there is none."""
    found = _beginning_with(_VOC, glance, ".xml")
    folders = {uri.rpartition("/")[0] for uri in found}
    if len(folders) != 1 or not glance.images:
        return None
    uri, head = next(iter(found.items()))
    folder = uri.rpartition("/")[0]
    pattern = f"{folder}/*.xml" if folder else "*.xml"
    part = {"file": pattern, "images": _folder_of(_VOC_NAME.search(head), glance)}
    why, objects = f"{uri} describes an image as Pascal VOC does", {"annotations": (part,)}
    sets = sorted(uri.rpartition("/")[0] for uri in glance.files if uri.endswith(_IMAGE_SETS))
    if sets:
        why += f"; the lists in {sets[0]} give the splits"
        return Recognised(why, {"objects": {**objects, "image_sets": sets[0]}})
    return Recognised(why, {"objects": objects})


def _name(uri: str) -> str:
    return uri.rpartition("/")[2]


def _split_of(uri: str) -> str | None:
    """Return the split that a word in the name of a file gives; None if none does, or several do."""
    found = {SPLIT_OF_FOLDER[word] for word in _WORD.findall(_name(uri).lower()) if word in SPLIT_OF_FOLDER}
    return found.pop() if len(found) == 1 else None


def _beginning_with(pattern: re.Pattern[bytes], glance: Glance, ending: str) -> dict[str, bytes]:
    """Return the files that begin so, with their first bytes."""
    heads = {uri: glance.head(uri, _HEAD_BYTES) for uri in glance.ending_in(ending)[:_MAX_FILES]}
    return {uri: head for uri, head in heads.items() if pattern.search(head)}


def _folder_of(name: re.Match[bytes] | None, glance: Glance) -> str:
    """Return the folder of the image of this name; "" for the source itself, or if it is not found."""
    if name is None:
        return ""
    tail = "/" + name[1].decode("utf-8", "replace").removeprefix("./")
    return next((uri.removesuffix(tail) for uri in glance.images if uri.endswith(tail)), "")
