"""Panoptic COCO: a PNG for each image. A pixel is the number of its segment: R + 256 G + 256² B.

https://cocodataset.org/#format-data, panoptic segmentation. The files lie in a folder that is named like the
JSON file, beside it or beside its folder. Each segment is an object, things and stuff alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.beam_jobs.sources.annotations.collecting import is_text
from shardmill.beam_jobs.sources.annotations.reading import AnnotationTable, read_together
from shardmill.beam_jobs.sources.annotations.shapes import MOST_MASK_PIXELS
from shardmill.infra.codecs.formats import ImageRejected
from shardmill.infra.codecs.masks import decode_mask
from shardmill.infra.errors import NotFoundError
from shardmill.infra.storage.locations import uri_of

VOID = 0  # number of pixels of no segment
_FIRST = 8  # files that are looked for

Numbers = npt.NDArray[np.int32]


class SegmentsBroken(ValueError):
    """The segments of an image cannot be read; says why, as the end of a sentence that begins with them."""


def is_panoptic(entry: object) -> bool:
    """Tell whether an annotation names the segments of a whole image."""
    return isinstance(entry, dict) and isinstance(entry.get("segments_info"), list)


def folder_of_segments(table: AnnotationTable, annotations: Sequence[Any]) -> str:
    """Return the folder of the PNG files of a panoptic file, in the storage of its own.

    Raises:
        NotFoundError: the first of them is in none of the usual folders.
    """
    folder, _, name = table.table.path.rpartition("/")
    stem, above = name.rpartition(".")[0], folder.rpartition("/")[0]
    places = dict.fromkeys(f"{place}/{end}".strip("/") for end in (stem, "") for place in (folder, above, ""))
    names = (_file_name(entry) for entry in annotations if is_panoptic(entry))
    first = list(islice((name for name in names if name), _FIRST))
    for place in places:
        if any(_is_there(table, f"{place}/{name}".lstrip("/")) for name in first):
            return place
    raise NotFoundError(
        f"the PNG files of {table.name} are not there: none of {', '.join(first)} is in the folder {stem}",
        f"put the folder {stem} beside {table.name}",
    )


def _file_name(entry: Mapping[str, Any]) -> str:
    """Return the name of the PNG file of an annotation; empty if it has none within the folder."""
    name = entry.get("file_name")
    if not isinstance(name, str) or not is_text(name) or ".." in name.split("/") or "\0" in name:
        return ""
    return name


def _is_there(table: AnnotationTable, path: str) -> bool:
    try:
        return table.table.folder.size(path) >= 0
    except NotFoundError:
        return False


def read_segments(
    table: AnnotationTable, annotations: Sequence[Any]
) -> Iterator[tuple[int, Mapping[str, Any], str, bytes | str]]:
    """Yield each annotation of segments with its PNG file.

    Yields:
        Number of the annotation, from 1; the annotation; URI of the file, empty if it names none; and the
        file, or why it cannot be read.
    """
    place = folder_of_segments(table, annotations)
    named: list[tuple[int, Mapping[str, Any], str]] = []
    for at, entry in enumerate(annotations, 1):
        if is_panoptic(entry):
            name = _file_name(entry)
            named.append((at, entry, f"{place}/{name}".lstrip("/") if name else ""))

    def read(one: tuple[int, Mapping[str, Any], str]) -> bytes | str:
        if not one[2]:
            return f"their annotation names no file: {one[1].get('file_name')!r}"
        return replace(table, table=replace(table.table, path=one[2])).content()

    for (at, entry, path), content in read_together(read, named):
        yield at, entry, uri_of(path), content


def segment_numbers(content: bytes | str, size: tuple[int, int] | None) -> Numbers:
    """Return the number of the segment of each pixel: int32 [H, W].

    Args:
        content: the PNG file, or why it cannot be read.
        size: height and width of the annotated image (pixels), if they are known.

    Raises:
        SegmentsBroken: it cannot be read, is grey, or has another size.
    """
    if isinstance(content, str):
        raise SegmentsBroken(content)
    try:
        samples, _ = decode_mask(content, MOST_MASK_PIXELS, in_color=False)
    except ImageRejected as error:
        raise SegmentsBroken(error.message) from error
    if samples.dtype != np.uint8 or samples.shape[2] != 3:
        raise SegmentsBroken("their file is not in colour (RGB of 8 bits)")
    if size is not None and samples.shape[:2] != size:
        own = f"{samples.shape[0]} x {samples.shape[1]}"
        raise SegmentsBroken(f"their file has {own} pixels, and the image {size[0]} x {size[1]}")
    red, green, blue = (samples[:, :, at].astype(np.int32) for at in range(3))
    numbers: Numbers = red + (green << 8) + (blue << 16)
    return numbers
