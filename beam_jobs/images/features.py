"""Features that reading an image finds: its metadata, and what its mask shows.

They are columns of the facts until the version is planned. Then they become columns of the listing, like the
features that a table gives.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from shardmill.beam_jobs.config import FilterConfig, ImageConfig, PrepareConfig
from shardmill.beam_jobs.schemas import FACTS_SCHEMA, Status
from shardmill.beam_jobs.tables.features import PREFIX, features_of, with_features
from shardmill.infra.codecs.metadata import NOTHING, Metadata, read_metadata
from shardmill.infra.format.features import Feature, Scalar
from shardmill.infra.format.known_features import METADATA_FEATURES, READ_MASK_FEATURES


def features_found(config: PrepareConfig) -> list[Feature]:
    """Return the features that reading the images finds."""
    has_masks = config.source.label_kind == "mask"
    return [*metadata_features(config.image), *(READ_MASK_FEATURES if has_masks else ())]


def facts_schema(config: PrepareConfig) -> pa.Schema:
    """Return FACTS_SCHEMA and columns of the features that reading finds."""
    return with_features(FACTS_SCHEMA, features_found(config))


def move_to_listing(listing: pa.Table, facts: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Move the columns of features from the facts of files to the listing.

    Args:
        listing: LISTING_SCHEMA and columns of features.
        facts: PLACED_FACTS_SCHEMA and columns of features, of the files that are read, in the same order.
    """
    features = features_of(facts)
    if not features:
        return listing, facts
    is_read = listing["status"].to_numpy() == Status.TO_READ
    places = pa.array(np.cumsum(is_read) - 1, mask=~is_read)
    for feature in features:
        column = facts[PREFIX + feature.name].take(places)
        listing = listing.append_column(feature.arrow_field(PREFIX), column)
    return listing, facts.drop_columns([PREFIX + feature.name for feature in features])


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
