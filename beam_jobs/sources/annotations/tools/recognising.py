"""Recognise the files of labelling tools, which name their images by paths of another machine."""

from __future__ import annotations

import re
from typing import Any

from shardmill.beam_jobs.config import SourceConfig
from shardmill.beam_jobs.sources.annotations.collecting import (
    READINGS,
    beginning_with,
    different_splits,
    split_with_year,
)
from shardmill.beam_jobs.sources.class_names import quoted
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised, cli_for


def recognise_documents(
    kind: str, words: str, pattern: re.Pattern[bytes], ending: str, glance: Glance, settings: SourceConfig
) -> Recognised | None:
    """Return the file that describes images, or several whose names give different splits.

    Args:
        kind: the kind of source.
        words: how it describes them: "as CVAT does".
        pattern: of its first bytes.
        ending: of its name.
        glance: at the source.
        settings: of the source.
    """
    found = _found(pattern, ending, glance, settings)
    if not found:
        return None
    parts: list[dict[str, Any]] = [{"file": uri} for uri in found]
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
    words: str, pattern: re.Pattern[bytes], ending: str, glance: Glance, settings: SourceConfig
) -> Recognised | None:
    """Return the folders of files that describe one image each; their names may give splits.

    Args:
        words: how they describe them.
        pattern: of their first bytes.
        ending: of their names.
        glance: at the source.
        settings: of the source.
    """
    found = _found(pattern, ending, glance, settings)
    if not found:
        return None
    folders = dict.fromkeys(uri.rpartition("/")[0] for uri in found)
    parts = [
        {"file": f"{folder}/*{ending}".lstrip("/")} | ({"split": split} if split else {})
        for folder in folders
        for split in [split_with_year(f"{folder}/") if folder else None]
    ]
    why = f"{found[0]} describes an image {words}"
    return Recognised(why, {"objects": {"annotations": tuple(parts)}}, image_folders=_folders(glance))


def _found(pattern: re.Pattern[bytes], ending: str, glance: Glance, settings: SourceConfig) -> list[str]:
    if settings.labels not in (None, "multi", "mask") or not glance.images:
        return []
    return list(beginning_with(pattern, glance, ending))


def _folders(glance: Glance) -> set[str]:
    return {uri.rpartition("/")[0] for uri in glance.images}
