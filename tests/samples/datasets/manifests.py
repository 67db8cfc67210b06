"""A manifest of a version without records, for tests of decisions that look at settings alone."""

from __future__ import annotations

from typing import Any

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.infra.format.contract import Manifest

BUILDS = {"pillow": "12"}


def empty_manifest(**config: Any) -> Manifest:
    """Return a manifest with these settings of prepare, made by the codecs ``BUILDS``."""
    return Manifest.model_validate(
        {
            "dataset": "d", "version": 1, "created_at": "2026-01-02T03:04:05Z", "plan_digest": "p",
            "run_digest": "r", "source": "/photos", "source_digest": "s", "classes": [], "shards": [],
            "container": "none", "codecs": BUILDS, "inputs": [], "splits": {},
            "config": PrepareConfig.model_validate(config).model_dump(mode="json"),
            "accounting": dict.fromkeys(
                ("num_inputs", "num_records", "num_duplicates", "num_filtered", "num_quarantined"), 0
            ),
        }
    )  # fmt: skip
