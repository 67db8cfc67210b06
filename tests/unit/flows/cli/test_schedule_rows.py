"""How schedules and inboxes are listed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from shardmill.flows.cli.server.schedule_rows import print_schedules, schedule_entries
from shardmill.flows.scheduling.inboxes import Inbox
from shardmill.flows.server.schedules import Schedule

PARAMETERS = {
    "source": "s3://KEY:secret@bucket/in?region=eu",
    "config": {"source": {"table": {"file": "s3://KEY:secret@bucket/labels.csv"}}},
}


def test_schedules_are_listed_without_the_credentials_of_their_sources(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    found = [
        Schedule("prepare", "photos", PARAMETERS, every=timedelta(hours=1)),
        Inbox("prepare", "photos", PARAMETERS, "new"),
    ]
    print_schedules(found)
    shown = capsys.readouterr().out
    assert shown.count("s3://bucket/in") == 2
    assert "secret" not in shown
    for entry in schedule_entries(found):
        assert entry["source"] == "s3://bucket/in"
        assert entry["config"] == {"source": {"table": {"file": "s3://bucket/labels.csv"}}}
    assert PARAMETERS["source"] == "s3://KEY:secret@bucket/in?region=eu", "runs still get the key"
