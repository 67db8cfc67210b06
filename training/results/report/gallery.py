"""Thumbnails of records that the page of a run shows, with links to their source files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from shardmill.infra.codecs import encode_jpeg, resize_short_side
from shardmill.infra.codecs.arrays import for_people
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.html.page import data_uri
from shardmill.infra.storage.locations import name_of
from shardmill.training.reading import RecordReader
from shardmill.training.reading.records.record_ids import id_number
from shardmill.training.tasks.annotated import Annotation

_SHORT_SIDE, _LONG_SIDE, _QUALITY = 112, 280, 75  # pixels, pixels, JPEG quality
_LONG_ANNOTATED = 564  # pixels: two pictures side by side


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small picture of a record.

    Attributes:
        picture: a data URI.
        width, height: its size (pixels).
        link: the URI of the source file; None: a browser could not open it.
    """

    picture: Markup
    width: int
    height: int
    link: str | None


def read_thumbnails(
    reader: RecordReader,
    wanted: Iterable[tuple[str, str]],
    annotations: Mapping[str, Annotation] | None = None,
) -> dict[str, Thumbnail]:
    """Read the pictures of records.

    Args:
        reader: the records of a split.
        wanted: id and source URI of each record.
        annotations: record id -> boxes or masks that are drawn.

    Returns:
        Record id -> picture; without records that are damaged, or not in the split.
    """
    sources = dict(wanted)
    found = {}
    ids = np.array([id_number(name) for name in sorted(sources)], np.uint64)
    for ordinal in np.flatnonzero(np.isin(reader.table.id, ids)).tolist():
        record_id = reader.table.id_of(ordinal)
        try:
            drawn = (annotations or {}).get(record_id)
            found[record_id] = _thumbnail(reader, ordinal, sources[record_id], drawn)
        except CorruptDataError:  # evaluation has reported it
            continue
    return found


def _thumbnail(
    reader: RecordReader, ordinal: int, source_uri: str, annotation: Annotation | None
) -> Thumbnail:
    (stored,) = reader.read_images(np.array([ordinal]))
    pixels = resize_short_side(for_people(reader.decoded(ordinal, stored)), _SHORT_SIDE)
    if annotation is not None:
        pixels = annotation.drawn(pixels)
    height, width = pixels.shape[:2]
    longest = _LONG_SIDE if annotation is None else _LONG_ANNOTATED
    top, left = (max(0, side - longest) // 2 for side in (height, width))
    pixels = np.ascontiguousarray(pixels[top : top + longest, left : left + longest])
    link = source_link(reader.split.version_of(ordinal).manifest.source, source_uri)
    return Thumbnail(data_uri(encode_jpeg(pixels, _QUALITY)), pixels.shape[1], pixels.shape[0], link)


def source_link(source: str, uri: str) -> str | None:
    """Return a URI that a browser can open for a file of a local source, else None."""
    path = source_path(source, uri)
    return None if path is None else path.as_uri()


def source_path(source: str, uri: str) -> Path | None:
    """Return the path of a file of a local source; None if the source is remote, or the file not known."""
    if not uri or "://" in uri or ("://" in source and not source.startswith("file://")):
        return None
    folder = Path(name_of(source.removeprefix("file://")))
    return folder / name_of(uri) if folder.is_absolute() else None
