"""Versions with far too many shards are reported."""

from __future__ import annotations

from typing import Any

import pytest

from beam_jobs.config import PrepareConfig
from beam_jobs.publish.crowding import crowded_shards
from infra.format.contract import Manifest

BUILDS = {"pillow": "12"}


def manifest(**config: Any) -> Manifest:
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


@pytest.mark.parametrize(
    ("num_shards", "config", "says"),
    [(7, {}, None), (8, {}, "8 shards where 1 would do"), (8, {"shards": {"num_shards": 4}}, None)],
)
def test_many_small_shards_are_told(num_shards: int, config: dict[str, Any], says: str | None) -> None:
    split = {"num_examples": 100, "num_shards": num_shards, "num_bytes": 1000, "class_counts": {}}
    found = manifest(**config).model_copy(
        update={"splits": {"train": Manifest.model_fields["splits"].annotation.__args__[1](**split)}}  # type: ignore[union-attr]
    )
    told = crowded_shards(found)
    assert told is None if says is None else says in str(told)
