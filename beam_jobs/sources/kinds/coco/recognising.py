"""Recognise COCO files: those of objects, and those of key points and captions beside them."""

from __future__ import annotations

import re

from shardmill.beam_jobs.sources.annotations.collecting import (
    HEAD_BYTES,
    READINGS,
    beginning_with,
    different_splits,
    folder_of_image,
)
from shardmill.beam_jobs.sources.class_names import quoted
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised, cli_for

_COCO = re.compile(rb'\A\s*\{.*?"(images|annotations|categories)"\s*:\s*\[', re.DOTALL)
_FILE_NAME = re.compile(rb'"file_name"\s*:\s*"([^"]+)"')
# Beginnings of names, as of instances_train2017.json; "" is any other. The first that is there is read, and
# files of the second kinds that are named alike join it.
_READ = ("instances", "", "person_keypoints", "panoptic", "captions", "stuff", "image_info")
_JOINED = ("person_keypoints", "captions")


def recognise_coco(glance: Glance) -> Recognised | None:
    """Return the JSON file that names images as COCO does, or several whose names give different splits.

    ``instances_train2017.json`` and ``instances_val2017.json`` are such. Key points and
    captions join files named alike.
    """
    found = {
        uri: head  # a whole file without a list of images is another, such as notes.json of Label Studio
        for uri, head in beginning_with(_COCO, glance, ".json").items()
        if b'"images"' in head or len(head) == HEAD_BYTES
    }
    if not found or not glance.images:
        return None
    first = min(map(_READ.index, map(_beginning, found)))
    main = [uri for uri in found if _beginning(uri) == _READ[first]]
    parts: list[dict[str, str | None]] = [
        {"file": uri, "images": folder_of_image(_FILE_NAME.search(found[uri]), uri, glance)} for uri in main
    ]
    why = f"{quoted(main)} {'lists' if len(main) == 1 else 'list'} images as COCO does"
    if len(main) > 1:
        splits = different_splits(main)
        if splits is None:
            readings = [cli_for("coco", {"objects": {"annotations": [part]}}) for part in parts[:READINGS]]
            return Recognised(why, image_folders={str(part["images"]) for part in parts}, readings=readings)
        parts = [{**part, "split": split} for part, split in zip(parts, splits, strict=True)]
        why += ", and their names give the splits"
    joined = [
        {**part, "file": uri}
        for begin in _JOINED
        for part, of_part in zip(parts, main, strict=True)
        for uri in found
        if _beginning(uri) == begin and _rest(uri) == _rest(of_part) and uri not in main
    ]
    if joined:
        why += f"; {quoted([str(part['file']) for part in joined])} tell more of these images"
    others = [uri for uri in found if uri not in {str(part["file"]) for part in (*parts, *joined)}]
    why += f"; not read: {quoted(others)}" if others else ""
    folders = {str(part["images"]) for part in parts} | _folders_of_panoptic(main, glance)
    return Recognised(why, {"objects": {"annotations": (*parts, *joined)}}, image_folders=folders)


def _beginning(uri: str) -> str:
    """Return the beginning of a file's name that tells what it holds; "" if it is another."""
    return next((word for word in _READ if word and _name(uri).startswith(word)), "")


def _rest(uri: str) -> str:
    """Return the name behind its beginning: train2017.json."""
    return _name(uri).removeprefix(_beginning(uri)).lstrip("_")


def _name(uri: str) -> str:
    return uri.rpartition("/")[2]


def _folders_of_panoptic(main: list[str], glance: Glance) -> set[str]:
    """Return the folders that are named like the files, which hold the segments of panoptic files."""
    stems = {_name(uri).rpartition(".")[0] for uri in main}
    folders = {uri.rpartition("/")[0] for uri in glance.images}
    return {folder for folder in folders if _name(folder) in stems}
