"""Metadata of image files as features of their records."""

from __future__ import annotations

from shardmill.beam_jobs.config import FilterConfig, ImageConfig
from shardmill.infra.codecs.metadata.reading import NOTHING, Metadata, read_metadata
from shardmill.infra.format.features import Feature, Scalar
from shardmill.infra.format.known_features import METADATA_FEATURES


def metadata_features(image: ImageConfig) -> list[Feature]:
    """Return the features that the metadata of the images become."""
    return [METADATA_FEATURES[name] for name in image.metadata]


def needed_metadata(data: bytes, image: ImageConfig, rules: FilterConfig) -> Metadata:
    """Read the metadata of a file if the configuration asks for any."""
    return read_metadata(data) if image.metadata or rules.ai_made == "drop" else NOTHING


def values_of(metadata: Metadata, image: ImageConfig) -> tuple[Scalar | str | None, ...]:
    """Return the values of the columns that ``metadata_features`` names."""
    found = (getattr(metadata, name) for name in image.metadata)
    return tuple(int(value) if isinstance(value, bool) else value for value in found)
