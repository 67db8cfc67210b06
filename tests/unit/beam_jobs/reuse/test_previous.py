"""The records of the previous version, and its parts that are valid under given settings."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.reasons import VERDICT_REASONS
from shardmill.beam_jobs.reuse.previous import PreviousVersion, Reuse, retried_reasons, reuse_of
from shardmill.beam_jobs.schemas import PREVIOUS_RECORDS_SCHEMA
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import sha256_hex
from tests.samples.datasets.manifests import BUILDS, empty_manifest
from tests.samples.datasets.published import coloured, publish

ALL, COPIES, NOTHING = (True, True, True), (True, True, False), (False, False, False)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({}, {}, ALL),
        ({}, {"failure_budget": 0.5, "runner": {"processes": 7}}, ALL),
        ({}, {"splits": {"train": 0.6, "validation": 0.2, "test": 0.2}}, ALL),
        ({}, {"groups": {"max_distance": 2}, "filter": {"ignore": ["*.gif"], "classes": ["a"]}}, ALL),
        ({}, {"shards": {"container": "none"}}, ALL),  # as auto chose
        ({}, {"shards": {"container": "gzip"}}, COPIES),
        ({}, {"shards": {"num_shards": 3}}, COPIES),
        ({"shards": {"num_shards": 3}}, {}, COPIES),
        ({}, {"shards": {"shard_bytes": 1000}}, COPIES),
        ({}, {"seed": 1}, COPIES),
        ({}, {"image": {"quality": 89}}, NOTHING),
        ({}, {"image": {"max_pixels": 1000}}, NOTHING),
        ({}, {"filter": {"min_width": 3}}, NOTHING),
        ({"filter": {"max_aspect": 2}}, {}, NOTHING),
    ],
)
def test_what_counts_under_which_settings(
    before: dict[str, Any], now: dict[str, Any], expected: tuple[bool, bool, bool]
) -> None:
    found = reuse_of(empty_manifest(**before), PrepareConfig.model_validate(now), "/photos", BUILDS)
    assert found == Reuse(*expected)


def test_what_counts_of_another_source_other_libraries_and_another_release() -> None:
    config = PrepareConfig()
    assert reuse_of(empty_manifest(), config, "/others", BUILDS) == Reuse(
        contents=True, uris=False, shards=True
    )
    assert reuse_of(empty_manifest(), config, "/photos", {"pillow": "13"}) == Reuse(*NOTHING)
    unlike = empty_manifest().model_copy(update={"config": {"image": {"short_side": 256}}})
    assert reuse_of(unlike, config, "/photos", BUILDS) == Reuse(*NOTHING)


def test_a_decoder_is_tried_again_under_other_limits() -> None:
    assert "decoder_hung" not in retried_reasons(empty_manifest(), PrepareConfig())
    later = PrepareConfig.model_validate({"runner": {"image_seconds": 600}})
    assert {"decoder_hung", "vanished"} <= set(retried_reasons(empty_manifest(), later))


def test_a_decoder_is_tried_again_with_masks_since_the_mask_may_have_changed() -> None:
    source = {"kind": "masks", "masks": {"classes": ["ground", "disc"]}}
    config = PrepareConfig.model_validate({"source": source})
    assert set(VERDICT_REASONS) <= set(retried_reasons(empty_manifest(), config))


EVERYTHING = Reuse(contents=True, uris=True, shards=True)


def test_columns_that_an_older_release_did_not_write_are_null(tmp_path: Path) -> None:
    version = publish(tmp_path, coloured({"train": {"a": 3, "b": 2}}), shards_per_split=1)
    (shard,) = version.manifest.shards
    sink = io.BytesIO()
    pq.write_table(version.index(shard).drop_columns(["stored_from", "pixel_std"]), sink)
    version.storage.write_atomic(shard.index_path, sink.getvalue())
    old_index = {"index_bytes": len(sink.getvalue()), "index_sha256": sha256_hex(sink.getvalue())}
    shards = [shard.model_copy(update=old_index)]
    old = DatasetVersion(version.storage, version.manifest.model_copy(update={"shards": shards}))

    records = PreviousVersion(old, EVERYTHING).records

    assert records.schema == PREVIOUS_RECORDS_SCHEMA
    assert records.num_rows == 5
    assert records["stored_from"].null_count == records["pixel_std"].null_count == 5
    assert records["height"].null_count == 0
