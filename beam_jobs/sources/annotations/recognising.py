"""Recognise annotation files by how they begin, and the folder that their images lie in."""

from __future__ import annotations

import re

from beam_jobs.sources.recognition.glance import Glance, Recognised

_HEAD_BYTES = 1 << 16
_MAX_FILES = 20  # that are looked into
_COCO = re.compile(rb'\A\s*\{.*?"(images|annotations|categories)"\s*:\s*\[', re.DOTALL)
_COCO_NAME = re.compile(rb'"file_name"\s*:\s*"([^"]+)"')
_VOC = re.compile(rb"\A\s*(<\?xml[^>]*>\s*)?<annotation\b")
_VOC_NAME = re.compile(rb"<filename>\s*([^<]+?)\s*</filename>")


def recognise_coco(glance: Glance) -> Recognised | None:
    """Return the one JSON file that names images as COCO does; None if there is none or several."""
    found = _beginning_with(_COCO, glance, ".json")
    if len(found) != 1 or not glance.images:
        return None
    ((uri, head),) = found.items()
    part = {"file": uri, "images": _folder_of(_COCO_NAME.search(head), glance)}
    return Recognised(f"{uri} lists images as COCO does", {"objects": {"annotations": (part,)}})


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
    return Recognised(f"{uri} describes an image as Pascal VOC does", {"objects": {"annotations": (part,)}})


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
