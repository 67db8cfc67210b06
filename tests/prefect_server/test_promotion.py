"""New images lead to a new model in use automatically, on a real server; people can intervene.

A training takes long on a busy machine: all of it is one chain of runs on one dataset, and each test looks at
a part of what was seen. The chain is slow; continuous integration runs it after ``make test``.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import time
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from selenium.common.exceptions import WebDriverException

from shardmill.infra.dataset.catalog import Catalog
from tests.browser.conftest import NO_BROWSER, Browser, find_chromium, started_chromium
from tests.prefect_server.postgresql import running_postgresql
from tests.prefect_server.server import RunningServer, started_up
from tests.prefect_server.training_page import SeenTraining, TrainingPage
from tests.samples.sources.image_folders import write_image_folder

NAME = "chain"
SIZES = {"image_size": 32, "global_batch_size": 16}
PIPELINE = {
    "dataset": NAME,
    "train_config": {"data": SIZES, "run": {"epochs": 30}},
    "promote": True,
    "promotion": {"minimum_examples": 1},
}
WATCHED = {"train_config": {"data": SIZES, "run": {"epochs": 30, "callbacks": ["looks:Waits"]}}}
EPOCHS_A_LOOK = 10
# Lets a training, however quick the machine, go on only to the epoch of the file: what was shown was seen.
WAITS = """\
import time
from pathlib import Path
import keras

class Waits(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        end = time.monotonic() + 10
        while epoch + 1 > int(Path({file!r}).read_text() or 0) and time.monotonic() < end:
            time.sleep(0.2)
"""


@dataclass(frozen=True)
class Watched:
    """A pipeline that was watched while it trained.

    Attributes:
        run: its id.
        message: of its last state.
        percents: the progress of its training, each time that someone looked.
        cards: the looks of its curve.
        page: what a browser saw of the training on the platform's page; None without a browser.
    """

    run: str
    message: str
    percents: list[float]
    cards: set[str]
    page: SeenTraining | None


@dataclass(frozen=True)
class Chain:
    """What was seen of the chain, oldest first.

    Attributes:
        server: that ran it.
        rules: the listed rules, while there was one.
        by_rule: messages of the runs that the rule started: after version 1, and after version 2.
        removals: exit statuses of removing the rule, twice.
        rules_left: the listed rules after that.
        waiting: message of a pipeline that published version 3, with too few new records to train on.
        versions: the versions after that.
        trained: a pipeline that trained on version 3.
        histories: the records of the alias after both runs of the rule, that pipeline, a promotion by
            hand, and a rollback.
        evaluated: message of an evaluation of the model in use, after the promotion.
        again: message of a last pipeline on what was trained on.
    """

    server: RunningServer
    rules: list[dict[str, Any]]
    by_rule: list[str]
    removals: list[int]
    rules_left: list[dict[str, Any]]
    waiting: str
    versions: list[int]
    trained: Watched
    histories: list[list[dict[str, Any]]]
    evaluated: str
    again: str


@pytest.fixture(
    scope="module",
    params=[pytest.param(database, marks=pytest.mark.slow) for database in ("sqlite", "postgresql")],
)
def chain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """The chain on a server with each kind of database."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "sqlite":
        yield run_the_chain(request.getfixturevalue("shardmill_up"), folder)
        return
    with running_postgresql() as database, started_up(folder / "up", "--database", database.url) as server:
        yield run_the_chain(server, folder)


def run_the_chain(server: RunningServer, folder: Path) -> Chain:
    """Publish, train by a rule, publish more, train by a pipeline, promote by hand, evaluate, take back."""
    small = [word for name, value in SIZES.items() for word in ("--set", f"data.{name}={value}")]
    rule = ["--train-when", "new=1000", "--promote", "--every", "1d", *small, "--set", "run.epochs=1"]
    add = ["schedule", "add", "--dataset", NAME, "--train"]
    _said(server, *add, "--train-when", "new=1")
    _said(server, *add, *rule)  # replaces the first
    _said(server, "schedule", "pause", "--dataset", NAME)
    (paused,) = json.loads(_said(server, "schedule", "list", "--json"))["rules"]
    assert not paused["active"]
    _said(server, "schedule", "resume", "--dataset", NAME, "--name", "train-when")
    rules = json.loads(_said(server, "schedule", "list", "--json"))["rules"]
    source = write_image_folder(folder / "photos")
    new = iter(sorted(write_image_folder(folder / "more", per_class=22).glob("*/02[01].jpg")))
    by_rule, histories = [], []
    for version in (1, 2):
        assert _message(server, "prepare/prepare", source=str(source), dataset=NAME).endswith(f"@{version}")
        by_rule.append(_message_by_automation(server, version))
        histories.append(_history(server))
        _add(next(new), source)
    removals = [server.shardmill("schedule", "remove", "--dataset", NAME).returncode for _ in range(2)]
    rules_left = json.loads(_said(server, "schedule", "list", "--json"))["rules"]

    for path in new:
        _add(path, source)
    may_end = folder / "may-end"
    may_end.write_text(str(EPOCHS_A_LOOK))
    (folder / "code").mkdir()
    (folder / "code" / "looks.py").write_text(WAITS.format(file=str(may_end)))
    waiting = _message(
        server, "pipeline/pipeline", **PIPELINE, source=str(source), train_when={"new_records": 8}
    )
    parameters: dict[str, Any] = {
        **PIPELINE,
        **WATCHED,
        "source": str(source),
        "code": str(folder / "code"),
    }
    versions = Catalog(server.root).versions(NAME)
    with contextlib.ExitStack() as ends:
        page = None
        if find_chromium() is not None:
            browser = Browser(ends.enter_context(started_chromium(folder / "profile")))
            page = TrainingPage(browser, server, f"{NAME}-v3-")
        trained = _watched(server, page, may_end, **parameters, only_when_changed=True)
    histories.append(_history(server))
    _message(server, "promote/promote", run=histories[-1][-1]["run"], reason="I want the new one")
    histories.append(_history(server))
    evaluated = _message(server, "evaluate/evaluate", run=f"{NAME}@production", split="validation")
    _said(server, "rollback", f"{NAME}@production", "--runs", str(server.runs))
    again = _message(server, "pipeline/pipeline", **parameters, only_when_changed=True)
    histories.append(_history(server))
    return Chain(
        server, rules, by_rule, removals, rules_left, waiting, versions, trained, histories, evaluated, again
    )


def _add(image: Path, source: Path) -> None:
    """Add an image to its class in the source."""
    shutil.copy(image, source / image.parent.name / f"new-{image.name}")


def _said(server: RunningServer, *arguments: str) -> str:
    """Standard output of a command, which ends well."""
    done = server.shardmill(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _message(server: RunningServer, deployment: str, **parameters: Any) -> str:
    """The last message of a run of a deployment, which ends well."""
    run = server.deployment_run(deployment, **parameters)
    ended = server.wait(run)
    assert ended["state_type"] == "COMPLETED", server.logs(run)
    return str(ended["state"]["message"])


def _message_by_automation(server: RunningServer, number: int) -> str:
    """The last message of the flow run that an automation made, the first or a later one."""

    def made() -> dict[str, Any] | None:
        runs = server.post("/flow_runs/filter", sort="EXPECTED_START_TIME_ASC", limit=200)
        found = [run for run in runs if (run["created_by"] or {}).get("type") == "AUTOMATION"]
        return found[number - 1] if len(found) >= number else None

    deadline = time.monotonic() + 300  # Prefect's server handles an event when it has the time
    while (run := made()) is None:
        assert time.monotonic() < deadline, "the event started nothing"
        time.sleep(0.3)
    ended = server.wait(run["id"])
    assert ended["state_type"] == "COMPLETED", server.logs(run["id"])
    return str(ended["state"]["message"])


def _history(server: RunningServer) -> list[dict[str, Any]]:
    """The records of the alias, oldest first."""
    told = _said(server, "model", "aliases", f"{NAME}@production", "--runs", str(server.runs), "--json")
    (found,) = json.loads(told)["aliases"]
    records: list[dict[str, Any]] = found["history"]
    return records


def _watched(server: RunningServer, page: TrainingPage | None, may_end: Path, **parameters: Any) -> Watched:
    """Run a pipeline, and look at it until it ends; then follow the links of the training's page.

    Each look that finds something new lets it do more epochs, by the file ``may_end``. What the browser did
    not find fails its own test, and no other.
    """
    run = server.deployment_run("pipeline/pipeline", **parameters)
    percents: list[float] = []
    cards: set[str] = set()
    while not server.has_ended(run):
        shown = _subjects(server.artifacts_of(run))
        if "train-progress" in shown:
            percents.append(float(shown["train-progress"]["data"]))
        if "training-curve" in shown:
            cards.add(shown["training-curve"]["description"])
        if page is not None:
            with contextlib.suppress(WebDriverException):
                page.look()
        num_looks = min(len(cards), len(set(percents)) - 1, *([] if page is None else [len(page.seen.steps)]))
        may_end.write_text(str(EPOCHS_A_LOOK * (1 + max(num_looks, 0))))
        time.sleep(0.5)
    ended = server.wait(run)
    assert ended["state_type"] == "COMPLETED", server.logs(run)
    if page is not None:
        with contextlib.suppress(WebDriverException):
            page.follow_links()
    seen = page.seen if page is not None else None
    return Watched(run, str(ended["state"]["message"]), percents, cards, seen)


def _subjects(artifacts: list[dict[str, Any]]) -> dict[str, Any]:
    """Artifacts, by the ending of their keys."""
    endings = ("prepare-progress", "train-progress", "training-curve", "final-figures", "per-class")
    endings += ("confusion-test", "summary", "pipeline")
    return {ending: one for one in artifacts for ending in endings if one["key"].endswith(f"-{ending}")}


def test_a_rule_is_listed_until_it_is_removed(chain: Chain) -> None:
    (found,) = chain.rules
    assert (found["dataset"], found["when"], found["every_seconds"]) == (NAME, {"new_records": 1000}, 86400)
    assert chain.removals == [0, 2]
    assert chain.rules_left == []


def test_publishing_starts_a_run_that_trains_or_says_why_not(chain: Chain) -> None:
    first, second = chain.by_rule
    assert first.startswith("Test accuracy ")
    assert second.startswith("Not trained: ")


def test_the_first_model_is_promoted(chain: Chain) -> None:
    (record,) = chain.histories[0]
    assert chain.histories[1] == [record], "no other model"
    assert (record["action"], record["trained_on"], record["predecessor"]) == ("promoted", f"{NAME}@1", None)
    assert record["manifest_sha256"] is not None


def test_a_pipeline_with_too_few_new_records_publishes_and_does_not_train(chain: Chain) -> None:
    assert chain.waiting.startswith("Nothing trained: ")
    assert "wanted: new>=8" in chain.waiting
    assert chain.versions == [1, 2, 3]


def test_a_pipeline_trains_on_a_version_that_no_training_has_finished_on(chain: Chain) -> None:
    """As a schedule with --train does; and it does not train on that version again."""
    assert chain.trained.message.startswith(f"Trained on {NAME}@3: test accuracy ")
    (trained,) = chain.server.runs.glob(f"{NAME}-v3-*")
    assert list(trained.glob("export/**/saved_model.pb")), "the model was exported"
    assert chain.again == f"Nothing trained: {NAME}@3 was trained on before"


def test_a_pipeline_shows_its_training_while_it_runs(chain: Chain) -> None:
    server, trained = chain.server, chain.trained
    assert trained.percents == sorted(trained.percents), "progress never falls back"
    assert len(set(trained.percents)) >= 3, "progress moves while the training runs"
    assert len(trained.cards) >= 2, "the curve moves while the training runs"
    assert "data:image/svg+xml;base64," in next(iter(trained.cards))
    own = _subjects(server.artifacts_of(trained.run))
    assert set(own) == {"prepare-progress", "train-progress", "training-curve", "pipeline"}
    assert "/runs/flow-run/" in own["pipeline"]["data"]
    assert f"[TensorBoard]({server.page_url}/tensorboard/)" in own["pipeline"]["data"]
    assert f"[Report]({server.page_url}/runs/{NAME}-v3-" in own["pipeline"]["data"]
    assert "after 30 epochs in" in own["train-progress"]["description"]
    all_shown = _subjects(server.artifacts(trained.run))
    assert {"summary", "final-figures", "per-class", "confusion-test"} <= set(all_shown)


def test_a_browser_sees_the_curve_of_a_training_move(chain: Chain) -> None:
    seen = chain.trained.page
    if seen is None:
        pytest.skip(NO_BROWSER)
    assert len(seen.steps) >= 2, "the page told of the steps while the training ran"
    assert seen.steps == sorted(seen.steps)
    assert seen.points == sorted(set(seen.points)), "and drew more points each time"
    assert seen.loads == 1, "without being loaded again"
    assert seen.report.startswith(f"{NAME}-v3-")
    assert seen.tensorboard_runs


def test_the_figures_decide_whether_a_later_model_takes_over(chain: Chain) -> None:
    first, second = chain.histories[2]
    assert [first["trained_on"], second["trained_on"]] == [f"{NAME}@1", f"{NAME}@3"]
    assert second["predecessor"] == first["run"]
    comparison = second["comparison"]
    assert comparison["dataset"] == f"{NAME}@3"
    assert (second["action"] == "promoted") == (comparison["figures"]["accuracy"]["low"] > 0)
    shown = {artifact["key"]: artifact for artifact in _artifacts_below(chain.server, chain.trained.run)}
    assert {f"{NAME}-production-verdict", f"{NAME}-production-comparison"} <= set(shown)
    picture = str(shown[f"{NAME}-production-intervals"]["description"]).partition("base64,")[2]
    assert b"candidate better" in base64.b64decode(picture.removesuffix(")"))


def test_people_promote_and_take_back(chain: Chain) -> None:
    candidate = chain.histories[2][-1]["run"]
    assert chain.histories[3][-1]["run"] == candidate
    assert chain.evaluated == f"Evaluated {candidate} on {NAME}@3, validation"
    assert chain.histories[4][-1]["action"] == "rolled back", "what a person took back stays so"


def test_events_tell_what_was_published_and_promoted(chain: Chain) -> None:
    told = {event["event"] for event in _events(chain.server)}
    assert {"shardmill.dataset.published", "shardmill.alias.moved"} <= told


def _events(server: RunningServer) -> list[dict[str, Any]]:
    """The events about the dataset and its aliases."""
    prefixes = [f"shardmill.dataset.{NAME}", f"shardmill.alias.{NAME}"]
    found: list[dict[str, Any]] = server.post(
        "/events/filter", filter={"resource": {"id_prefix": prefixes}}, limit=50
    )["events"]
    return found


def _artifacts_below(server: RunningServer, run_id: str) -> list[dict[str, Any]]:
    """The artifacts of a flow run, of its subflows' runs, and of theirs."""
    found = server.artifacts(run_id)
    for child in server.post(
        "/flow_runs/filter", flow_runs={"parent_flow_run_id": {"any_": [run_id]}}, limit=50
    ):
        found += server.artifacts(child["id"])
    return found


@pytest.mark.parametrize(
    ("deployment", "parameters", "named"),
    [
        ("promote/promote", {"run": "../elsewhere"}, "run"),
        ("promote/promote", {"run": "a", "alias": "Latest!"}, "alias"),
        ("promote/promote", {"run": "a", "rules": {"confidence": 1.5}}, "confidence"),
        ("promote/promote", {"run": "a", "rules": {"metrik": "loss"}}, "metrik"),
        ("evaluate/evaluate", {"run": "a", "split": "all"}, "split"),
        ("train/train", {"dataset": "x", "when": {"new_records": 0}}, "new_records"),
    ],
)
def test_wrong_values_are_refused_by_the_form(
    shardmill_up: RunningServer, deployment: str, parameters: dict[str, object], named: str
) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        shardmill_up.deployment_run(deployment, **parameters)
    with refused.value as answer:
        assert answer.code == 409
        assert named in answer.read().decode()


def test_the_training_with_pytorch_keeps_it_with_other_settings(shardmill_up: RunningServer) -> None:
    config = {"run": {"epochs": 2}}
    run = shardmill_up.deployment_run("train-torch/train-torch", dataset="absent", config=config)
    assert shardmill_up.wait(run)["state_type"] == "FAILED"
    (shown,) = (one["data"] for one in shardmill_up.artifacts(run) if one["key"].endswith("-failure"))
    assert "run.framework=torch" in shown, "the command that does the same"
