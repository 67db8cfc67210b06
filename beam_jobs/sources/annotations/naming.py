"""The file of each annotated image: named like its annotation file, or by the end of a path."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from operator import itemgetter

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
    known = PathEnds(files.filter(pc.equal(files["status"], Status.TO_READ))["uri"].to_pylist())
    for number, count in zip(at, counts.tolist(), strict=True):
        if count:
            continue
        image = found.images[number]
        path, several = _found_by_end(image.ends, known)
        if path is not None:
            found.images[number] = replace(image, path=path)
        elif image.fault is None and several is not None:
            found.images[number] = replace(image, fault=several, reason=SEVERAL_FILES)
        elif image.fault is None and image.if_missing is not None:
            found.images[number] = replace(image, fault=image.if_missing, reason=MISSING_FILE)


class PathEnds:
    """Files by the ends of their paths.

    Args:
        uris: of the files.
    """

    def __init__(self, uris: Iterable[str]) -> None:
        self._files = sorted((_from_end(uri), uri) for uri in uris)

    def most_alike(self, path: str) -> list[str]:
        """Return the files whose ends are most like that of a path, two if there are several."""
        return self._most_alike(_from_end(path))[1]

    def ending_in(self, path: str) -> list[str]:
        """Return the files that end in a path, two if there are several."""
        parts = _from_end(path)
        length, uris = self._most_alike(parts)
        return uris if length == len(parts) else []

    def _most_alike(self, parts: tuple[str, ...]) -> tuple[int, list[str]]:
        at = bisect_left(self._files, parts, key=itemgetter(0))
        # Files that share most parts lie beside each other, and beside the place of the path.
        near = [(_shared(parts, other), uri) for other, uri in self._files[max(at - 2, 0) : at + 2]]
        longest = max((length for length, _ in near), default=0)
        return longest, [uri for length, uri in near if 0 < length == longest][:2]


def _from_end(path: str) -> tuple[str, ...]:
    """Return the parts of a path, the last one first."""
    parts = composed(path.replace("\\", "/")).split("/")[::-1]
    return tuple(part for part in parts if part not in ("", "."))


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many first parts are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _found_by_end(ends: Sequence[str], files: PathEnds) -> tuple[str | None, str | None]:
    """Return the only file that ends most like a path, or words if there are several for each.

    Args:
        ends: the paths, tried one after the other.
        files: the files.
    """
    several: str | None = None
    for end in ends:
        best = files.most_alike(end)
        if len(best) == 1:
            return best[0], None
        several = several or (f"several files end in {end}, such as {min(best)}" if best else None)
    return None, several


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
