"""Traits of the source images: formats, colours and orientations, and how they were handled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.format.features import Feature

if TYPE_CHECKING:
    from shardmill.beam_jobs.report.figures.survey import Survey

ROWS_SHOWN = 7

_TURNED = {
    "": "not stated",
    "1": "upright",
    "2": "mirrored",
    "3": "upside down",
    "4": "upside down, mirrored",
    "5": "on its side, mirrored",
    "6": "on its side, turned right",
    "7": "on its side, mirrored",
    "8": "on its side, turned left",
}
_STORED_FROM = {
    "planes": "resized as YCbCr planes",
    "pixels": "resized as pixels",
    "source": "the source's own bytes",
    "": "not stated",
}


@dataclass(frozen=True, slots=True)
class Trait:
    """One trait: (value, number of records), the most frequent value first."""

    title: str
    rows: tuple[tuple[str, int], ...]

    @property
    def total(self) -> int:
        """Number of records."""
        return sum(count for _, count in self.rows)


def traits(survey: Survey) -> list[Trait]:
    """Return the traits to plot: those that are known of some record."""
    found = survey.traits
    handling: Counter[str] = Counter()
    handling["converted to sRGB from an ICC profile"] = _known(found["icc_profile"])
    handling["transparent, put on the background"] = _known(found["had_alpha"])
    handling["salvaged: the file ends early"] = _known(found["salvaged"])
    for value, words in _STORED_FROM.items():
        if value:
            handling[words] = found["stored_from"][value]
    turned: Counter[str] = Counter()
    for value, count in found["orientation"].items():
        turned[_TURNED.get(value, value)] += count
    profiles = Counter({value: count for value, count in found["icc_profile"].items() if value})
    cards = [
        _trait("Format", found["source_format"], "unknown"),
        _trait("Colour", found["source_color"], "not stated"),
        _trait("Orientation (EXIF)", turned, "not stated"),
        _trait("What was done", +handling, ""),
        _trait("ICC profiles", profiles, ""),
        *(_trait(title_of(name), counts, "not stated") for name, counts in survey.described.items()),
    ]
    return [card for card in cards if {name for name, _ in card.rows} - {"not stated"}]


def _known(counts: Counter[str]) -> int:
    return sum(count for value, count in counts.items() if value)


def _trait(title: str, counts: Counter[str], unnamed: str) -> Trait:
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rows = [(value or unnamed, count) for value, count in ranked if count]
    if len(rows) > ROWS_SHOWN:
        rest = sum(count for _, count in rows[ROWS_SHOWN - 1 :])
        rows = [*rows[: ROWS_SHOWN - 1], (f"{len(ranked) - ROWS_SHOWN + 1:,} others", rest)]
    return Trait(title, tuple(rows))


_TITLES: Final = {
    "captured_at": "Year of capture",
    "camera_model": "Camera",
    "digital_source_type": "Declared origin",
    "licence": "Licence",
    "license": "Licence",
    "attribution": "Attribution",
    "gps_present": "Position in the file",
    "c2pa_present": "Content Credentials",
}
_TRUTHS: Final = {"0": "none", "1": "present"}
_YEAR_CHARACTERS = 4
_MAX_CHARACTERS = 80


def described_columns(features: Sequence[Feature]) -> list[str]:
    """Return the features that are counted: single texts, and those that are 1 or 0."""
    found = []
    for feature in features:
        is_truth = feature.name in ("gps_present", "c2pa_present") and feature.dtype == "int64"
        if feature.name in _TITLES and feature.shape == "scalar" and (feature.is_text or is_truth):
            found.append(feature.name)
    return found


def title_of(name: str) -> str:
    """Return the title of the values of a feature."""
    return _TITLES[name]


def counted_values(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return the values of a feature as they are counted: string [N], null where a record lacks it."""
    texts = column.cast(pa.string())
    if name == "captured_at":
        return pc.utf8_slice_codeunits(texts, 0, _YEAR_CHARACTERS)
    if name in ("gps_present", "c2pa_present"):
        at = pc.index_in(texts, pa.array(list(_TRUTHS)))
        return pa.chunked_array([pa.array(list(_TRUTHS.values())).take(at.combine_chunks())])
    return pc.utf8_slice_codeunits(texts, 0, _MAX_CHARACTERS)
