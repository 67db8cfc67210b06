"""Further features of annotated images, from the entries that name them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from shardmill.beam_jobs.config import FeatureColumn
from shardmill.beam_jobs.sources.annotations.collecting import Annotations
from shardmill.beam_jobs.sources.kinds.table.typed.features import joined_features, typed_column
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.features import Feature
from shardmill.infra.near_names import near_names
from shardmill.infra.strict_json import dump_json


def features_of_entries(
    found: Annotations,
    entries: Sequence[Mapping[str, Any]],
    asked: Mapping[str, FeatureColumn],
    known: Collection[str] = (),
) -> None:
    """Give the images the features that their entries hold under the keys that are asked for.

    Args:
        found: with the images.
        entries: values of JSON of each image, by their keys.
        asked: the settings of each feature; its column is the key.
        known: keys that there are, for errors.

    Raises:
        ConfigError: no image has a key, or its values can be no feature.
    """
    there = {*known, *(key for entry in entries for key, value in entry.items() if value != [])}
    typed = {}
    for name, one in asked.items():
        key = one.column or name
        if key not in there:
            near = near_names(key, sorted(known))
            raise ConfigError(
                f"source.columns.features: no image of the annotations has {key!r}",
                f"did you mean {near[0]!r}?" if near else "name a key of their entries",
            )
        texts = [dump_json(entry[key]) if entry.get(key) is not None else None for entry in entries]
        column = typed_column("of images", name, pa.chunked_array([texts], pa.string()), one, "jsonl")
        for number, fault in column.faults.items():
            if found.images[number].fault is None:
                found.images[number] = replace(found.images[number], fault=f"its {name} {fault}")
        typed[name] = column
    found.add_features(joined_features([typed], asked))


def texts_feature(name: str, values: Sequence[list[str] | None], column: str) -> pa.Table:
    """Return a feature of any number of texts an image, as ``Annotations.add_features`` takes it.

    Args:
        name: of the feature.
        values: the texts of each image, None if it has none.
        column: the key of the source that they come from.
    """
    feature = Feature(name=name, dtype="bytes", shape="variable", is_text=True, column=column)
    texts = pa.array(values, pa.list_(pa.string()))
    return pa.Table.from_arrays([texts], schema=pa.schema([feature.arrow_field(PREFIX)]))
