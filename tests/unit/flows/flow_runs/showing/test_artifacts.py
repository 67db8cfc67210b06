"""The content of a run's page, before Prefect gets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.flows.flow_runs.showing import markdown as addresses
from shardmill.flows.flow_runs.showing import prepared, trained
from shardmill.flows.flow_runs.showing.failed import JobEnd, failure_text, show_failed, state_message
from shardmill.flows.flow_runs.showing.headline import headline, sentence
from shardmill.flows.flow_runs.showing.page import Keys
from shardmill.flows.pipeline import show_pipeline
from shardmill.infra.errors import DataError, LockedError
from shardmill.training.config import TrainConfig
from tests.unit.flows.flow_runs.showing.recorded_page import RecordedPage

KEYS = Keys("photos")
PREPARED: dict[str, Any] = {
    "dataset": "photos",
    "version": 3,
    "num_inputs": 11,
    "num_records": 5,
    "num_duplicates": 1,
    "num_filtered": 2,
    "num_quarantined": 3,
    "splits": {"train": {"class_counts": {"cat": 3, "<b>": 1}}, "test": {"class_counts": {"cat": 1}}},
    "report": "/data/photos/report.html",
    "unchanged": False,
}
LOST = {
    "reasons": {"truncated": 2, "empty": 1},
    "meanings": {"truncated": ["The image ends early", "Fetch the file again"]},
    "inputs": [
        {
            "uri": "a|b`.jpg",
            "reason": "truncated",
            "message": "ends early",
            "picture": "data:image/jpeg;base64,AA",
        },
        {
            "uri": "![x](http://evil.example/p.png)",
            "reason": "empty",
            "message": "<img src=x>",
            "picture": None,
        },
    ],
}


def trained_result(run_dir: Path) -> dict[str, Any]:
    per_class = {"cat": {"recall": 0.6931471805599453}, "dog": {"recall": 1.0}}
    return {
        "dataset": "photos",
        "version": 3,
        "model": "small_cnn",
        "run_dir": str(run_dir),
        "epochs": 20,
        "steps": 40,
        "seconds": 722.0,
        "metrics": {"test": {"accuracy": 0.7123456, "loss": 0.3, "per_class": per_class}},
        "notes": ["test_notes are [shown]"],
        "unchanged": False,
    }


@pytest.mark.parametrize(
    ("name", "subject", "key"),
    [
        ("photos", "class-balance", "photos-class-balance"),
        ("My_Photos.v2", "progress", "my-photos-v2-progress"),
        ("-x-", "y", "x-y"),
    ],
)
def test_keys_are_those_that_prefect_allows(name: str, subject: str, key: str) -> None:
    assert Keys.of(name, TrainConfig()).key(subject) == key


def test_other_settings_have_a_series_of_their_own() -> None:
    changed = TrainConfig.model_validate({"run": {"epochs": 7}})
    keys = {
        Keys.of("photos", *settings).series for settings in ([TrainConfig()], [changed], [PrepareConfig()])
    }
    assert len(keys) == 2
    assert Keys.of("photos", changed) == Keys.of("photos", changed.model_copy(deep=True))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "published photos@3: 5 records, 3 inputs quarantined"),
        ({"num_quarantined": 0, "num_records": 3564}, "published photos@3: 3,564 records"),
        ({"unchanged": True}, "nothing changed: photos@3 is up to date"),
    ],
)
def test_the_headline_of_a_version(changes: dict[str, Any], text: str) -> None:
    assert headline(PREPARED | changes) == text
    assert sentence(PREPARED | changes)[0].isupper()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "test accuracy 71.23% after 20 epochs in 12 min"),
        ({"unchanged": True}, "test accuracy 71.23% after 20 epochs in 12 min (finished before)"),
        ({"metrics": {"validation": {"r2": 0.25}}}, "validation R² 0.2500 after 20 epochs in 12 min"),
        ({"metrics": {}}, "trained on photos@3 after 20 epochs in 12 min"),
    ],
)
def test_the_headline_of_a_training(changes: dict[str, Any], text: str, tmp_path: Path) -> None:
    assert headline(trained_result(tmp_path) | changes) == text


def test_the_page_of_a_version() -> None:
    page = RecordedPage()
    shards = prepared.shard_rows(
        {"train": [SimpleNamespace(num_examples=n, num_bytes=10) for n in (7, 8, 7)]}
    )
    prepared.show_prepared(page, KEYS, PREPARED, shards, LOST)
    assert set(page.shown) == {
        f"photos-{subject}"
        for subject in ("summary", "splits-and-shards", "accounting", "class-balance", "quarantine")
    }
    (row,) = page.shown["photos-splits-and-shards"][1]
    assert (row["examples"], row["smallest shard"], row["largest shard"], row["bytes"]) == (22, 7, 8, 30)
    accounting = {row["outcome"]: row["inputs"] for row in page.shown["photos-accounting"][1]}
    assert accounting.pop("all inputs") == sum(accounting.values())
    _, text, card = page.shown["photos-class-balance"]
    assert card.startswith("![Class balance of photos@3](data:image/svg+xml;base64,")
    assert "| cat | 3 | 1 |" in text
    assert "&lt;b&gt;" in text
    assert page.shown["photos-quarantine"][2] == "3 inputs cannot be used: truncated (2), empty (1)"


def test_names_on_the_quarantine_page_are_no_markdown() -> None:
    page = RecordedPage()
    prepared.show_prepared(page, KEYS, PREPARED, [], LOST)
    text = page.shown["photos-quarantine"][1]
    assert "![a\\|b\\`.jpg](data:image/jpeg;base64,AA)" in text
    assert "`![x](http://evil.example/p.png)`" in text
    assert "&lt;img src=x&gt;" in text
    assert "The image ends early. What to do: Fetch the file again." in text


def test_the_page_of_a_training(tmp_path: Path) -> None:
    (tmp_path / "examples.json").write_text(
        json.dumps(
            {
                "hardest": {
                    "test": [{"uri": "h.jpg", "label": "cat", "predicted": "<b>dog", "picture": None}]
                },
                "label_errors": [
                    {"uri": "e.jpg", "split": "test", "label": "cat", "suggested": "dog", "picture": None}
                ],
            }
        )
    )
    (tmp_path / "confusion-test.svg").write_text("<svg/>")
    (tmp_path / "curve.jsonl").write_text('{"split": "train", "epoch": 1, "step": 1, "loss": 2.0}\n')
    page = RecordedPage()
    matrix = {"test": str(tmp_path / "confusion-test.svg"), "train": str(tmp_path / "gone.svg")}
    trained.show_trained(page, KEYS, trained_result(tmp_path) | {"confusion_pictures": matrix})
    assert set(page.shown) == {
        "photos-summary",
        "photos-final-figures",
        "photos-per-class",
        "photos-confusion-test",
    }
    text = page.shown["photos-summary"][1]
    for words in (
        "| accuracy | 71.23% |",
        "| h.jpg".replace("h.jpg", "&lt;b&gt;dog | `h.jpg`"),
        "Likely label errors",
        "`e.jpg`",
        "(data:image/svg+xml;base64,",
        f"tensorboard --logdir {tmp_path}",
        "test\\_notes are \\[shown\\]",
    ):
        assert words in text
    assert page.shown["photos-summary"][2] == "**test accuracy 71.23% after 20 epochs in 12 min**"


def test_the_summary_of_a_pipeline_grows(tmp_path: Path) -> None:
    runs = [uuid4(), uuid4()]
    page = RecordedPage(runs[:1])
    show_pipeline(page, KEYS, PREPARED, None)
    assert f"[prepare](/runs/flow-run/{runs[0]})" in page.shown["photos-pipeline"][1]
    page = RecordedPage(runs)
    show_pipeline(page, KEYS, PREPARED, trained_result(tmp_path))
    _, text, card = page.shown["photos-pipeline"]
    assert f"[train](/runs/flow-run/{runs[1]})" in text
    assert "| records | 5 |" in text
    assert "| accuracy | 71.23% |" in text
    assert "test accuracy" in card
    assert "published photos" in card


def test_a_failure_says_first_what_failed_where_and_what_to_do() -> None:
    error = DataError("`a.jpg` is bad\ntwo lines", "mend a.jpg")
    error.__cause__ = JobEnd("at 40 %, encode: 4 of 10 images", ["line 1", "``` fence"], LOST)
    page = RecordedPage()
    show_failed(page, KEYS, "prepare", error, "shardmill prepare /data")
    _, text, card = page.shown["photos-failure"]
    assert card == "**prepare failed**: \\`a.jpg\\` is bad two lines"
    order = [
        "**What:** \\`a.jpg\\` is bad",
        "two lines",
        "**Where:** at 40 %",
        "**What to do:** mend a.jpg",
        "`shardmill prepare /data`",
        "truncated: 2 inputs",
        "line 1",
    ]
    found_at = [text.index(words) for words in order]
    assert found_at == sorted(found_at)
    assert "````text\nline 1\n``` fence\n````" in text
    assert state_message("prepare", error).splitlines() == [
        "prepare failed: `a.jpg` is bad",
        "two lines",
        "What to do: mend a.jpg",
    ]


def test_a_failure_without_a_job_is_shown_too() -> None:
    text = failure_text("train", DataError("it is empty"), "shardmill train photos")
    assert "**What:** it is empty" in text
    assert "Where" not in text


def test_a_job_that_others_hold_up_has_not_failed() -> None:
    error = LockedError("another prepare works on photos", "wait until it has ended")
    text = failure_text("maintain", error, "")
    assert text.startswith("## maintain did not begin\n")
    assert "**To continue:** *Retry* on this page." in text
    assert state_message("maintain", error).startswith("maintain did not begin: another prepare")


@pytest.mark.parametrize("page", [None, "http://127.0.0.1:4300/"])
def test_addresses_are_links_where_the_platform_has_a_page(
    page: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(addresses.PAGE_URL, raising=False)
    if page is not None:
        monkeypatch.setenv(addresses.PAGE_URL, page)
    report = addresses.dataset_report("a b", 3)
    text = addresses.line("Report", report, "/d/report.html", "shardmill report a")
    if page is None:
        assert text == "- Report: `/d/report.html`; on the machine that ran it: `shardmill report a`"
    else:
        assert text == "- [Report](http://127.0.0.1:4300/datasets/a%20b/3/report) `/d/report.html`"
        assert addresses.run_report("a/../b") == "http://127.0.0.1:4300/runs/a%2F..%2Fb/report"
        assert addresses.tensorboard() == "http://127.0.0.1:4300/tensorboard/"


def test_the_process_of_a_flow_loads_no_image_libraries() -> None:
    heavy = ["cv2", "PIL", "simplejpeg", "tensorflow", "torch", "keras", "apache_beam"]
    program = (
        "import sys, shardmill.flows.pipeline, shardmill.flows.flow_runs.showing.training_curve\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
