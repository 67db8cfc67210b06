"""The origin of the records: features from the metadata of files or from a table, by their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.format.features import Feature

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
