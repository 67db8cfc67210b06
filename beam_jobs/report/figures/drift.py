"""Drift since the previous version, for a report that is written again."""

from __future__ import annotations

from pydantic import ValidationError

from shardmill.beam_jobs.config.planning import DriftConfig
from shardmill.infra.dataset.drift.figures import Drift
from shardmill.infra.dataset.drift.measuring import measure
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError

FIGURES_SHOWN = 12


def drift_since(before: DatasetVersion | None, after: DatasetVersion) -> Drift | None:
    """Compare a version with the one before it, with the limits of its configuration.

    Returns:
        None if the versions were not to be compared, or cannot be.
    """
    if before is None:
        return None
    try:
        config = DriftConfig.model_validate(after.manifest.config.get("drift", {}))
        return None if config.action == "off" else measure(before, after, config)
    except (ValidationError, CorruptDataError):
        return None
