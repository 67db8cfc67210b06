"""Every reason is explained, and every reason that a codec gives is known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shardmill.beam_jobs.report.reasons import REASONS
from shardmill.beam_jobs.schemas import DECODE_REASONS, FILTER_REASONS, MASK_REASONS, QUARANTINE_REASONS


@pytest.mark.parametrize("reason", sorted(QUARANTINE_REASONS | FILTER_REASONS))
def test_every_reason_is_explained(reason: str) -> None:
    assert all(REASONS[reason])


def test_every_reason_that_a_codec_gives_is_known() -> None:
    root = Path(__file__).parents[3]
    texts = [path.read_text() for path in (root / "infra/codecs").rglob("*.py")]
    raised = {reason for text in texts for reason in re.findall(r'ImageRejected\(\s*"(\w+)"', text)}
    assert {"empty", "too_long"} <= raised <= {*DECODE_REASONS, *MASK_REASONS}
