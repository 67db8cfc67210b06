"""Recognise annotation files by their first bytes: the steps that all formats share."""

from __future__ import annotations

import re

from shardmill.beam_jobs.sources.recognition.glance import Glance
from shardmill.beam_jobs.sources.roles import split_of_name

HEAD_BYTES = 1 << 16
MAX_FILES = 20  # that are looked into
READINGS = 4  # files or folders that are named where several fit
_YEAR = re.compile(r"(?<=[A-Za-z])[0-9]+")


def split_with_year(uri: str) -> str | None:
    """Return the split that the name of a file or of its folder gives, also with a year: ``train2017``."""
    return split_of_name(_YEAR.sub("", uri))


def beginning_with(pattern: re.Pattern[bytes], glance: Glance, ending: str) -> dict[str, bytes]:
    """Return the files that begin so, with their first bytes."""
    heads = {uri: glance.head(uri, HEAD_BYTES) for uri in glance.ending_in(ending)[:MAX_FILES]}
    return {uri: head for uri, head in heads.items() if pattern.search(head)}


def folder_of_image(name: re.Match[bytes] | None, annotation: str, glance: Glance) -> str:
    """Return the folder of the image of this name, the nearest to its annotation if there are several.

    It is "" for the source itself, or if the image is not found.
    """
    if name is None:
        return ""
    path = name[1].decode("utf-8", "replace").removeprefix("./")
    tail = f"/{path}"
    seen = [f"/{uri}".removesuffix(tail)[1:] for uri in glance.images if f"/{uri}".endswith(tail)]
    if seen:
        shared = set(annotation.split("/"))
        return max(seen, key=lambda folder: len(shared.intersection(folder.split("/"))))
    # A glance sees some of the files of a large folder.
    folders = dict.fromkeys(uri.rpartition("/")[0] for uri in glance.images)
    return next((folder for folder in folders if folder and glance.head(f"{folder}/{path}", 1)), "")
