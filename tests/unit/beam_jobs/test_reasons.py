"""Every reason that a codec gives is known."""

from __future__ import annotations

import re
from pathlib import Path

from shardmill.beam_jobs.reasons import FILTER_REASONS, QUARANTINE_REASONS, REASONS


def test_a_reason_is_filtered_or_quarantined_and_explained() -> None:
    assert set(REASONS) == FILTER_REASONS | QUARANTINE_REASONS
    assert not FILTER_REASONS & QUARANTINE_REASONS
    assert [reason for reason, words in REASONS.items() if not all(words)] == []


def test_every_reason_that_a_codec_gives_is_known() -> None:
    root = Path(__file__).parents[3]
    texts = [path.read_text() for path in (root / "infra/codecs").rglob("*.py")]
    raised = {reason for text in texts for reason in re.findall(r'ImageRejected\(\s*"(\w+)"', text)}
    assert {"empty", "too_long"} <= raised <= QUARANTINE_REASONS
