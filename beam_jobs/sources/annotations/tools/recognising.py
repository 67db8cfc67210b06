"""Recognise the files of labelling tools, which name their images by paths of another machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from shardmill.beam_jobs.config import SourceConfig
from shardmill.beam_jobs.sources.annotations.collecting import (
    READINGS,
    beginning_with,
    different_splits,
    folder_of_stem,
    split_with_year,
)
from shardmill.beam_jobs.sources.class_names import quoted
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised, cli_for
from shardmill.infra.storage.locations import stem_of


def recognise_documents(
    kind: str,
    words: str,
    pattern: re.Pattern[bytes],
    ending: str,
    glance: Glance,
    settings: SourceConfig,
    image: re.Pattern[bytes] | None = None,
) -> Recognised | None:
    """Return the file that describes images, or several whose names give different splits.

    Args:
        kind: the kind of source.
        words: how it describes them: "as CVAT does".
        pattern: of its first bytes.
        ending: of its name.
        glance: at the source.
        settings: of the source.
        image: finds the name of the first image; None: images are found by the ends of their paths alone.
    """
    heads = _found(pattern, ending, glance, settings)
    found = list(heads)
    if not found:
        return None
    parts: list[dict[str, Any]] = [{"file": uri} for uri in found]
    for part in parts:
        name = image.search(heads[part["file"]]) if image is not None else None
        stem = name[1].decode("utf-8", "replace") if name is not None else ""
        part |= _images(folder_of_stem(stem, part["file"], glance)) if stem else {}
    why = f"{quoted(found)} {'describes' if len(found) == 1 else 'describe'} images {words}"
    splits = different_splits(found)
    if len(found) > 1 and splits is None:
        readings = [cli_for(kind, {"objects": {"annotations": [part]}}) for part in parts[:READINGS]]
        return Recognised(why, image_folders=_folders(glance), readings=readings)
    if len(found) > 1 and splits is not None:
        why += ", and their names give the splits"
        parts = [{**part, "split": split} for part, split in zip(parts, splits, strict=True)]
    return Recognised(why, {"objects": {"annotations": tuple(parts)}}, image_folders=_folders(glance))


def recognise_one_an_image(
    kind: str,
    words: str,
    pattern: re.Pattern[bytes],
    ending: str,
    glance: Glance,
    settings: SourceConfig,
    *,
    in_other_folders: bool = False,
) -> Recognised | None:
    """Return the folders of files that describe one image each; their names may give splits.

    Args:
        kind: the kind of source.
        words: how they describe them.
        pattern: of their first bytes.
        ending: of their names.
        glance: at the source.
        settings: of the source.
        in_other_folders: the images are named like the files, and may lie in other folders.
    """
    found = list(_found(pattern, ending, glance, settings))
    if not found:
        return None
    parts = _parts_of(found, ending, glance, with_images=in_other_folders)
    why = f"{found[0]} describes an image {words}"
    same = [
        pair
        for pair in combinations(parts if in_other_folders else (), 2)
        if _are_of_same_images(*pair, glance)
    ]
    for one, other in same:  # sorted: labels comes before labels_hbb
        if _folder_of(other).startswith(_folder_of(one)) and other in parts:
            parts.remove(other)
            why += f"; not read: {other['file']}"
    if any(one in parts and other in parts for one, other in same):
        readings = [cli_for(kind, {"objects": {"annotations": [part]}}) for part in parts[:READINGS]]
        why += f", and {quoted([part['file'] for part in parts])} describe the same images"
        return Recognised(why, image_folders=_folders(glance), readings=readings)
    return Recognised(why, {"objects": {"annotations": tuple(parts)}}, image_folders=_folders(glance))


def _parts_of(
    found: Sequence[str], ending: str, glance: Glance, *, with_images: bool
) -> list[dict[str, Any]]:
    """Return what the settings say of each folder of such files, with the folder of their images if asked."""
    first = {uri.rpartition("/")[0]: uri for uri in reversed(found)}
    parts: list[dict[str, Any]] = []
    for folder, uri in sorted(first.items()):
        split = split_with_year(f"{folder}/") if folder else None
        part = {"file": f"{folder}/*{ending}".lstrip("/")} | ({"split": split} if split else {})
        if with_images:
            part |= _images(folder_of_stem(stem_of(uri.rpartition("/")[2]), uri, glance))
        parts.append(part)
    if with_images and {part.get("split") for part in parts} == {"train"}:
        for part in parts:  # the others are not annotated: validation and test are taken from these
            del part["split"]
    return parts


def _folder_of(part: Mapping[str, Any]) -> str:
    return str(part["file"]).rpartition("/")[0]


def _are_of_same_images(one: Mapping[str, Any], other: Mapping[str, Any], glance: Glance) -> bool:
    """Tell whether two folders of files, each named like an image, have files of the same names."""
    if "images" not in one or one["images"] != other.get("images"):
        return False
    names = [
        {
            name
            for uri in glance.files
            for folder, _, name in [uri.rpartition("/")]
            if folder == _folder_of(part)
        }
        for part in (one, other)
    ]
    return bool(names[0] & names[1])


def _images(folder: str) -> dict[str, str]:
    return {"images": folder} if folder else {}


def _found(
    pattern: re.Pattern[bytes], ending: str, glance: Glance, settings: SourceConfig
) -> dict[str, bytes]:
    """Return the files that begin so, with their first bytes."""
    if settings.labels not in (None, "multi", "mask") or not glance.images:
        return {}
    return beginning_with(pattern, glance, ending)


def _folders(glance: Glance) -> set[str]:
    return {uri.rpartition("/")[0] for uri in glance.images}
