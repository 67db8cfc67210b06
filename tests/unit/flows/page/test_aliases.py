"""The page of aliases shows who has one, and why."""

from __future__ import annotations

from pathlib import Path

from shardmill.flows.page.app import create_app
from shardmill.flows.page.options import PageOptions
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.aliases import AliasName
from shardmill.training.aliases.history import AliasHistory
from shardmill.training.aliases.record import Action, AliasRecord
from tests.samples.pages.catalogues import HOSTILE, make_run, publish
from tests.samples.pages.served import get


def decide(runs: Path, run: str, action: Action) -> None:
    history = AliasHistory(Storage.at(runs), AliasName("photos"))
    record = AliasRecord(
        dataset="photos", alias="production", action=action, run=run, at="2026-11-23T10:00:00+00:00",
        by="anna@host", trained_on="photos@1", verdict=f"better: {HOSTILE}",
    )  # fmt: skip
    history.add(lambda _: record)


def test_the_holder_and_the_decisions_are_shown_on_three_pages(tmp_path: Path) -> None:
    root, runs = tmp_path / "datasets", tmp_path / "runs"
    publish(root, "photos")
    for name in ("first", "second", "third"):
        make_run(runs, name)
    decide(runs, "first", "promoted")
    decide(runs, "second", "promoted")
    decide(runs, "third", "kept")
    app = create_app(PageOptions(str(root), str(runs)))
    text = get(app, "/aliases").text
    assert 'is the run <a href="/runs/second">' in text
    assert text.count("anna@host") == 3
    assert "<script>alert" not in text
    assert "photos@production" in get(app, "/runs/second").text
    assert "photos@production" not in get(app, "/runs/third").text
    assert get(app, "/lineage?dataset=photos").text.count("photos@production") == 1


def test_a_damaged_history_is_a_row(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    decide(runs, "first", "promoted")
    (runs / "aliases" / "photos" / "production" / "000002.json").write_text("{")
    (runs / "aliases" / "photos" / "NOT AN ALIAS").mkdir()
    answer = get(create_app(PageOptions(str(tmp_path / "datasets"), str(runs))), "/aliases")
    assert answer.status_code == 200
    assert "000002.json cannot be read" in answer.text
