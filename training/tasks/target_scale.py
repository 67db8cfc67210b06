"""Mean and deviation of the numbers that a regression predicts, over the train split. No TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import DataError
from shardmill.infra.format.labels import TARGETS
from shardmill.training.reading.records.columns import Targets

_LEAST_SHARE = 1e-6  # share of a number below which float32 cannot tell changes from rounding


@dataclass(frozen=True, slots=True)
class TargetScale:
    """Mean and standard deviation of each target."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def target_scale(version: DatasetVersion) -> TargetScale:
    """Return mean and standard deviation of each target over the train split, from its indexes.

    Raises:
        DataError: a target has the same value in all records.
    """
    names = version.manifest.label_names
    parts = [version.rows(shard, [TARGETS])[TARGETS] for shard in version.shards("train")]
    column = pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.list_(pa.float32()))
    values = Targets.of(column, len(names)).values
    mean = values.mean(axis=0, dtype=np.float64)
    std = values.std(axis=0, dtype=np.float64)
    for number, name in enumerate(names):
        if std[number] <= _LEAST_SHARE * abs(mean[number]) or not std[number] > 0:
            raise DataError(
                f"the target {name!r} of {version.ref} is {mean[number]:g} in all train records",
                "leave its column out of source.columns.target_columns",
            )
    return TargetScale(tuple(mean.tolist()), tuple(std.tolist()))
