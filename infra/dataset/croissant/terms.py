"""The licence and the attribution of a version's images, from the further features of its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow.compute as pc

from shardmill.infra.format.contract import Manifest
from shardmill.infra.format.features import Feature
from shardmill.infra.format.parquet import read_parquet
from shardmill.infra.storage.filesystem import Storage

# Name of a further feature -> the property of schema.org that it is.
PROPERTIES: Final[Mapping[str, str]] = {
    "licence": "license",
    "license": "license",
    "attribution": "creditText",
    "creator": "creator",
    "rights": "copyrightNotice",
}
_LICENCES, _ATTRIBUTIONS = ("licence", "license"), ("attribution",)


@dataclass(frozen=True, slots=True)
class Terms:
    """Properties that every record of a version shares.

    Attributes:
        licence: the one that all records have; None if they have several, or one has none.
        attribution: likewise.
    """

    licence: str | None = None
    attribution: str | None = None


def terms_of(storage: Storage, manifest: Manifest) -> Terms:
    """Read the licence and the attribution of a version from its indexes.

    Nothing is read if the version has no such features.

    Raises:
        NotFoundError: an index is missing. pyarrow.ArrowException: it is not readable.
    """
    names = {feature.name for feature in manifest.extra_features if _is_text(feature)}
    return Terms(
        *(
            _only_value(storage, manifest, next((name for name in known if name in names), None))
            for known in (_LICENCES, _ATTRIBUTIONS)
        )
    )


def _is_text(feature: Feature) -> bool:
    return feature.is_text and feature.shape == "scalar"


def _only_value(storage: Storage, manifest: Manifest, name: str | None) -> str | None:
    """Return the value that a feature has in every record; None if there is no such value."""
    found: set[str | None] = set()
    if name is None:
        return None
    for shard in manifest.shards:
        with storage.open_input(shard.index_path) as stream:
            column = read_parquet(stream, columns=[name])[name]
        found.update(pc.unique(column).to_pylist())
        if len(found) > 1:
            return None
    return found.pop() or None if found else None
