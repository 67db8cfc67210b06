"""The rules of retention choose versions to keep."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shardmill.infra.dataset.maintenance.garbage import outdated_versions

NOW = datetime(2026, 5, 31, tzinfo=UTC)
# Version 1 is 50 days old, version 5 is 10 days old.
CREATED = {number: NOW - timedelta(days=60 - 10 * number) for number in (1, 2, 3, 4, 5)}


@pytest.mark.parametrize(
    ("keep_last", "keep_days", "protected", "dropped"),
    [
        pytest.param(None, None, [], [], id="no rule keeps all"),
        pytest.param(2, None, [], [1, 2, 3], id="by number"),
        pytest.param(9, None, [], [], id="fewer than that"),
        pytest.param(None, 30, [], [1, 2], id="by age, exactly 30 days are not older"),
        pytest.param(None, 0, [], [1, 2, 3, 4], id="the newest stays"),
        pytest.param(1, 30, [], [1, 2], id="one rule is enough to keep"),
        pytest.param(1, None, [2, 9], [1, 3, 4], id="trained on"),
    ],
)
def test_a_version_goes_when_no_rule_keeps_it(
    keep_last: int | None, keep_days: float | None, protected: list[int], dropped: list[int]
) -> None:
    found = outdated_versions(CREATED, keep_last=keep_last, keep_days=keep_days, protected=protected, now=NOW)
    assert found == dropped
