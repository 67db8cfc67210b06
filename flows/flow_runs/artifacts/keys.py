"""Names of artifacts: Prefect shows those of one key as a series, over all runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import BaseModel

from shardmill.infra.digests import digest_of

_DIGEST_LENGTH = 6


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a run: ``<dataset>-<settings>-<subject>``.

    Runs of one dataset with the same settings share a series, and no others. ``<settings>`` is a digest of
    the settings that differ from the defaults; without any it is left out.

    Attributes:
        series: all before the subject.
    """

    series: str

    @classmethod
    def of(cls, dataset: str, *settings: BaseModel) -> Keys:
        """Return the keys of runs on a dataset with these settings."""
        changed = [one.model_dump(mode="json", exclude_defaults=True) for one in settings]
        digest = digest_of(changed, length=_DIGEST_LENGTH) if any(changed) else ""
        return cls(f"{dataset}-{digest}")

    def key(self, subject: str) -> str:
        """Return the key of a subject: lower-case letters, digits and dashes, as Prefect wants them."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.series}-{subject}".lower()).strip("-")
