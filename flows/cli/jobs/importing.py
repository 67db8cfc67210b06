"""Look at a data set of another library, and suggest the settings to prepare it with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.jobs.settings import checked_source, prepare_settings

if TYPE_CHECKING:
    from beam_jobs.config import PrepareConfig
    from beam_jobs.request import JobRequest


def recognised_import(
    source: str,
    dataset: str,
    root: str,
    config: Path | None,
    overrides: list[str],
    failure_budget: float | None,
) -> JobRequest:
    """Return the request that takes a data set over; says on standard error what was recognised.

    Raises:
        UsageError: it is not recognised. ConfigError: a setting is wrong, or the data set is damaged.
    """
    from beam_jobs.sources.recognition.importing import import_request
    from infra.progress import shown_to_people

    def load(base: Mapping[str, Any]) -> PrepareConfig:
        return prepare_settings(config, overrides, failure_budget, base=base)

    place = checked_source(source, dataset, "auto")
    with shown_to_people():
        return import_request(place, dataset, root, load)
