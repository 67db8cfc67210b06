"""Verdicts: the limits under which they hold, and the earlier rows that they outdate."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shardmill.beam_jobs.config import PrepareConfig, RunnerConfig
from shardmill.beam_jobs.encode.blocks import cut_blocks, facts_file, reuse_blocks, spool_file, write_facts
from shardmill.beam_jobs.execution.verdicts import (
    NO_VERDICTS,
    Verdict,
    keep_verdict,
    known_verdicts,
    reasons_to_retry,
)
from shardmill.beam_jobs.reasons import VERDICT_REASONS, explain
from shardmill.beam_jobs.schemas import FACTS_SCHEMA
from shardmill.infra.storage.filesystem import Storage
from tests.unit.beam_jobs.encode.test_block_task import references

LIMITS = RunnerConfig()


def verdict(content: bytes = b"x", reason: str = "decoder_crashed", **limits: Any) -> Verdict:
    known = {"image_seconds": LIMITS.image_seconds, "image_memory_bytes": LIMITS.image_memory_bytes}
    return Verdict(hashlib.sha256(content).hexdigest(), reason, **(known | limits))


def test_they_hold_under_their_limits_only(tmp_path: Path) -> None:
    spool = Storage.at(tmp_path)
    assert known_verdicts(spool, LIMITS) == {}
    keep_verdict(spool, verdict(b"one"))
    keep_verdict(spool, verdict(b"two", "decoder_hung", image_seconds=5.0))
    keep_verdict(spool, verdict(b"three", "decoder_out_of_memory", image_memory_bytes=1 << 27))
    assert set(known_verdicts(spool, LIMITS)) == {hashlib.sha256(b"one").digest()}
    brief = known_verdicts(spool, RunnerConfig(image_seconds=5))
    assert [one.reason for one in brief.values()] == ["decoder_hung"]


@pytest.mark.parametrize("reason", VERDICT_REASONS)
def test_every_reason_is_explained(reason: str) -> None:
    assert explain(reason) != explain("not_known")
    assert explain(reason)[1] != explain("not_known")[1]
    assert verdict(b"x", reason).message


@pytest.mark.parametrize(
    ("then", "now", "again"),
    [
        ({}, {}, False),
        ({}, {"image_seconds": 61}, True),
        ({}, {"image_seconds": 59}, False),
        ({}, {"image_memory_bytes": 1 << 33}, True),
        ({"image_seconds": 90}, {}, False),
        ({"image_seconds": 30}, {}, True),
    ],
)
def test_rows_of_an_earlier_version_are_tried_again_with_more(
    then: dict[str, Any], now: dict[str, Any], again: bool
) -> None:
    config = PrepareConfig.model_validate({"runner": then}).model_dump(mode="json")
    expected = VERDICT_REASONS if again else ()
    assert reasons_to_retry(config, RunnerConfig.model_validate(now)) == expected


def test_a_config_from_before_the_guard_is_tried_with_the_defaults() -> None:
    assert reasons_to_retry({}, LIMITS) == ()


@pytest.mark.parametrize("known", [True, False])
def test_a_block_is_reused_while_its_verdicts_hold(known: bool, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"content")
    (block,) = cut_blocks(pa.Table.from_batches([references(tmp_path, ["a.jpg"])]), 4)
    one = verdict(b"content")
    digest = bytes.fromhex(one.sha256)
    spool = Storage.at(tmp_path / "spool")
    row = {"sha256": digest, "outcome": "quarantined", "stage": "decode", "reason": one.reason}
    write_facts(spool, block.digest, pa.Table.from_pylist([row], FACTS_SCHEMA))
    spool.write_atomic(spool_file(block.digest), b"")
    verdicts = {digest: one} if known else NO_VERDICTS
    assert reuse_blocks(spool, [block], verdicts) == ({block.digest} if known else set())
    assert spool.exists(facts_file(block.digest)) is known
