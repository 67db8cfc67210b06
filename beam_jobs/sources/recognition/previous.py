"""Settings of the source that the previous version of the dataset settled, which ``auto`` keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from shardmill.beam_jobs.config import SourceConfig
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import UsageError
from shardmill.infra.html.formatting import differing_settings
from shardmill.infra.progress import log
from shardmill.infra.settings import STORED

_SHOWN = 4


@dataclass(frozen=True, slots=True)
class PreviousSettings:
    """Settings of the source of a version.

    Attributes:
        ref: ``name@version``.
        source: the settings; their kind is known.
    """

    ref: str
    source: SourceConfig

    def keep(self, recognise: Callable[[], SourceConfig]) -> SourceConfig:
        """Return these settings, with a warning if the source would be recognised otherwise now.

        Args:
            recognise: returns the settings that fit the source now.
        """
        try:
            found = recognise()
        except UsageError as error:
            log(f"{error.message}; the settings of {self.ref} are kept", level="warning")
            return self.source
        differing = _differing(self.source, found)
        if differing:
            log(
                f"{self.ref} was prepared with {differing}; the settings of {self.ref} are kept. "
                "For others, name the kind (--source-kind) and its settings",
                level="warning",
            )
        return self.source


def previous_settings(
    root: str, dataset: str, source_uri: str, given: dict[str, Any]
) -> PreviousSettings | None:
    """Return the settings of the newest version, if they are for this source and agree with the given ones.

    Args:
        root: folder of the datasets.
        dataset: name of the dataset.
        source_uri: the source as manifests name it.
        given: settings of the source that are not the usual ones, without the kind.
    """
    newest = Catalog(root).latest(dataset)
    if newest is None or newest.manifest.source != source_uri:
        return None
    try:
        before = SourceConfig.model_validate(newest.manifest.config.get("source", {}), context=STORED)
    except ValidationError:  # written by another release
        return None
    if not _has(before.model_dump(exclude_defaults=True), given):
        return None
    return PreviousSettings(newest.ref, before)


def _has(settings: Any, given: Any) -> bool:
    """Tell whether nested settings have all given values."""
    if not isinstance(given, dict):
        return bool(settings == given)
    return isinstance(settings, dict) and all(_has(settings.get(key), value) for key, value in given.items())


def _differing(before: SourceConfig, found: SourceConfig) -> str:
    """Return the settings that differ, in words; empty if none does."""
    if before.kind != found.kind:
        return f"source.kind = {before.kind}, and the source is recognised as {found.kind} now"
    differing = differing_settings({"source": before.in_use()}, {"source": found.in_use()})
    shown = [f"{name} = {then} (now {now})" for name, (then, now) in list(differing.items())[:_SHOWN]]
    return ", ".join(shown + (["..."] if len(differing) > _SHOWN else []))
