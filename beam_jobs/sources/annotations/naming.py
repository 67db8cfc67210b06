"""The file of each annotated image: named like its annotation file, or by the end of a path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.reasons import MISSING_FILE, SEVERAL_FILES
from shardmill.beam_jobs.schemas import Status
from shardmill.beam_jobs.sources.annotations.collecting import Annotations
from shardmill.beam_jobs.sources.kinds.table.matching import locate
from shardmill.infra.readable import counted
from shardmill.infra.storage.locations import composed, stem_of


def find_names(found: Annotations, files: pa.Table) -> None:
    """Give images the path of their file, where it is not simply the one that their annotation names.

    Args:
        found: the images.
        files: LISTING_SCHEMA.
    """
    _prefer_namesakes(found, files)
    _find_ends(found, files)


def _find_ends(found: Annotations, files: pa.Table) -> None:
    """Give images whose path is no file the only one that ends most like one of their ``ends``."""
    at = [number for number, image in enumerate(found.images) if image.ends]
    if not at:
        return
    _, counts = locate(pa.array([found.images[number].path for number in at], pa.string()), files)
    by_name: dict[str, list[tuple[list[str], str]]] = {}
    for uri in files.filter(pc.equal(files["status"], Status.TO_READ))["uri"].to_pylist():
        parts = composed(uri).split("/")
        by_name.setdefault(parts[-1], []).append((parts, uri))
    for number, count in zip(at, counts.tolist(), strict=True):
        if count:
            continue
        image = found.images[number]
        path, several = _found_by_end(image.ends, by_name)
        if path is not None:
            found.images[number] = replace(image, path=path)
        elif image.fault is None and several is not None:
            found.images[number] = replace(image, fault=several, reason=SEVERAL_FILES)
        elif image.fault is None and image.if_missing is not None:
            found.images[number] = replace(image, fault=image.if_missing, reason=MISSING_FILE)


def _found_by_end(
    ends: Sequence[str], by_name: Mapping[str, list[tuple[list[str], str]]]
) -> tuple[str | None, str | None]:
    """Return the only file that ends most like a path, or words if there are several for each.

    Args:
        ends: the paths, tried one after the other.
        by_name: name of a file -> parts of the path of each such file, and its URI.
    """
    several: str | None = None
    for end in ends:
        parts = [part for part in composed(end.replace("\\", "/")).split("/") if part not in ("", ".")]
        alike = [(_shared(parts, other), uri) for other, uri in by_name.get(parts[-1] if parts else "", [])]
        longest = max((length for length, _ in alike), default=0)
        best = [uri for length, uri in alike if length == longest]
        if len(best) == 1:
            return best[0], None
        several = several or (f"several files end in {end}, such as {best[0]}" if best else None)
    return None, several


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many parts at the end of two paths are the same."""
    length = 0
    while length < min(len(one), len(other)) and one[-1 - length] == other[-1 - length]:
        length += 1
    return length


def _prefer_namesakes(found: Annotations, files: pa.Table) -> None:
    """Give each image the file that is named like its annotation file, if there is one."""
    at = [number for number, image in enumerate(found.images) if image.namesake is not None]
    if not at:
        return
    images = [found.images[number] for number in at]
    namesakes = pa.array([image.namesake for image in images], pa.string())
    by_namesake, counts = locate(namesakes, files)
    by_name, _ = locate(pa.array([image.path for image in images], pa.string()), files)
    num_others = 0
    for number, image, file, count, named in zip(at, images, by_namesake, counts, by_name, strict=True):
        # Of several of this name the annotation may tell which one.
        if not count or (
            named >= 0 and (named == file or stem_of(files["uri"][named].as_py()) == image.namesake)
        ):
            continue
        path = files["uri"][file].as_py() if count == 1 else image.namesake
        found.images[number] = replace(image, path=path)
        num_others += 1
    if num_others:
        found.warnings.append(
            f"{counted(num_others, 'annotation file')} name another image than the one that is named like "
            "the file itself, which is taken"
        )
