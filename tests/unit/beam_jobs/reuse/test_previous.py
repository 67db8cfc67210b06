"""The records that a previous version holds."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow.parquet as pq

from shardmill.beam_jobs.reuse.previous import PreviousVersion, Reuse
from shardmill.beam_jobs.schemas import PREVIOUS_RECORDS_SCHEMA
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import sha256_hex
from tests.samples.datasets.published import coloured, publish

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
