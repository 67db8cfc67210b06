"""Aliases and label errors of runs in a bucket, from several machines that share nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmill.flows import cli
from shardmill.infra.errors import UsageError
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.aliases import AliasName
from shardmill.training.aliases.history import AliasHistory, AliasRecords
from shardmill.training.aliases.record import AliasRecord
from shardmill.training.config import TrainConfig
from shardmill.training.promotion import verdict
from shardmill.training.promotion.deciding import promote_by_figures, promote_by_hand
from shardmill.training.promotion.rules import PromotionRules
from shardmill.training.results.predictions.file import predictions_file
from shardmill.training.run.files.identity import run_identity, run_name
from shardmill.training.run.files.stored import opened_run
from shardmill.training.train import train_dataset
from tests.samples.datasets.published import coloured, publish
from tests.samples.stores.object_store import ObjectStore, serve_with_credentials
from tests.samples.training.finished_runs import FinishedRuns

NAME = AliasName("set")


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with serve_with_credentials("aliases-of-tests") as running:
        yield running


class Machines:
    """Commands on runs in a bucket, each on a machine of the caller's choice."""

    def __init__(
        self, runs: str, root: Path, folder: Path, environment: pytest.MonkeyPatch, out: Any
    ) -> None:
        self.runs, self.root = runs, root
        self._folder, self._environment, self._out = folder, environment, out

    def use(self, machine: str) -> None:
        """Go on as another machine."""
        self._environment.setenv("SHARDMILL_RUNS_COPY", str(self._folder / machine))

    def __call__(self, machine: str, *arguments: str) -> str:
        """Run a command on a machine; return its output."""
        self.use(machine)
        places = [
            "--runs",
            self.runs,
            *(["--root", str(self.root)] if arguments[1] not in ("aliases", "rollback") else []),
        ]
        status = cli.run([*arguments, *places])
        captured = self._out.readouterr()
        assert status == 0, captured.err
        return str(captured.out)

    def holder(self, machine: str) -> str:
        """The run that has the alias, as a machine sees it."""
        found = json.loads(self(machine, "model", "aliases", str(NAME), "--json"))
        return str(found["aliases"][0]["run"])


def upload(folder: Path, location: str) -> None:
    store = Storage.at(location)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        store.write_atomic(str(path.relative_to(folder)), path.read_bytes())


@pytest.fixture
def made(tmp_path: Path) -> FinishedRuns:
    made = FinishedRuns(tmp_path / "made")
    made.run("one", 2, lambda rows: rows % 3 != 0)
    made.run("two", 2, lambda rows: rows % 10 != 0)
    return made


@pytest.fixture
def machines(
    store: ObjectStore,
    made: FinishedRuns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Machines:
    runs = store.location(tmp_path.name)
    upload(made.runs, runs)
    return Machines(runs, made.root, tmp_path, monkeypatch, capsys)


def test_the_way_of_an_alias_over_three_machines(machines: Machines) -> None:
    assert machines("a", "model", "promote", "one").startswith("set@production is now one\n  the first model")
    assert machines.holder("b") == "one"
    assert "is now two (before: one)\n  better beyond the noise" in machines("b", "model", "promote", "two")
    with opened_run(str(NAME), machines.runs) as run:
        assert run.name == "two"
    assert machines("c", "model", "rollback", str(NAME)).startswith("set@production is now one (before: two)")
    assert machines.holder("a") == "one"
    assert machines("a", "model", "aliases", "set").count("trained on set@2") == 3


def test_a_run_that_the_store_lacks_does_not_get_an_alias_back(machines: Machines) -> None:
    machines("a", "model", "promote", "one")
    machines("a", "model", "promote", "two")
    Storage.at(machines.runs).delete_tree("one")
    with pytest.raises(AssertionError, match="was the run one before, which is not under s3://"):
        machines("a", "model", "rollback", str(NAME))
    assert machines.holder("a") == "two"


def test_a_backup_has_the_aliases_of_the_store_and_brings_them_back(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path / "home"))
    machines("a", "model", "promote", "one")
    machines("a", "platform", "backup", str(tmp_path / "kept"))
    store = Storage.at(machines.runs)
    kept = {entry.path: store.read_bytes(entry.path) for entry in store.list_files("aliases")}
    store.delete_tree("aliases")
    machines("a", "platform", "restore", str(tmp_path / "kept"))
    assert {path: store.read_bytes(path) for path in kept} == kept
    assert machines.holder("b") == "one"


def test_of_two_decisions_at_once_the_second_sees_the_first(store: ObjectStore) -> None:
    runs = Storage.at(store.location("raced"))
    together, seen = threading.Barrier(2), []

    def add(run: str) -> None:
        first = threading.Event()

        def decide(earlier: AliasRecords) -> AliasRecord:
            seen.append((run, [record.run for record in earlier.sound]))
            if not first.is_set():
                first.set()
                together.wait(60)  # both decide before either record is there
            about: dict[str, Any] = {"dataset": "set", "alias": "production", "trained_on": "set@1"}
            return AliasRecord(**about, action="promoted", run=run, at="now", by="me", verdict="by hand")

        AliasHistory(runs, NAME).add(decide)

    threads = [threading.Thread(target=add, args=(run,)) for run in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = (record.run for record in AliasHistory(runs, NAME).read().sound)
    assert {first, second} == {"one", "two"}
    assert (second, [first]) in seen, "the loser decides again, knowing the winner"


def test_promotions_on_two_machines_at_once_are_both_kept(machines: Machines, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shardmill.training.promote", "--root", str(machines.root)]
    command += ["--runs", machines.runs, "--reason", "by hand"]
    started = [
        subprocess.Popen(
            [*command, run],
            env={**os.environ, "SHARDMILL_RUNS_COPY": str(tmp_path / run)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for run in ("one", "two")
    ]
    for process in started:
        process.communicate(timeout=200)
        assert process.returncode == 0
    first, second = AliasHistory(Storage.at(machines.runs), NAME).read().sound
    assert ({first.run, second.run}, second.predecessor) == ({"one", "two"}, first.run)


def test_what_was_evaluated_to_compare_is_uploaded(
    machines: Machines, made: FinishedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither TensorFlow nor a model: in place of the evaluation, a program puts the predictions there."""
    store = Storage.at(machines.runs)
    kept = tmp_path / "kept.parquet"
    kept.write_bytes(store.read_bytes(f"one/{predictions_file('test')}"))
    store.delete(f"one/{predictions_file('test')}")
    program = (
        "import pathlib, shutil, sys; from shardmill.infra import progress as events; events.adopt_parent();"
        f"shutil.copy({str(kept)!r}, pathlib.Path(sys.argv[1]) / {predictions_file('test')!r});"
        "events.result({})"
    )
    monkeypatch.setattr(verdict, "EVALUATE", (sys.executable, "-c", program))
    machines.use("a")
    with opened_run("one", machines.runs) as one:
        promote_by_hand(one, "production", machines.runs, "the first")
    with opened_run("two", machines.runs) as two:
        found = promote_by_figures(two, "production", machines.runs, str(made.root), PromotionRules())
    assert found.holder == "two"
    assert store.read_bytes(f"one/{predictions_file('test')}") == kept.read_bytes()


def test_the_model_of_an_alias_is_not_trained_anew_on_a_machine_that_never_saw_the_alias(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = store.location("in-use")
    version = publish(tmp_path / "datasets", coloured({"train": {"a": 2, "b": 2}}), name="set")
    config = TrainConfig.model_validate({"run": {"epochs": 2}})
    name, runs = run_name(config, version), Storage.at(location)
    runs.write_atomic(f"{name}/run.json", json.dumps(run_identity(config, version)).encode())
    runs.write_atomic(f"{name}/result.json", b'{"epochs": 2, "history": [], "stopped_early": null}')
    AliasHistory(runs, NAME).add(
        lambda earlier: AliasRecord(
            dataset="set", alias="production", action="promoted", run=name, at="now", by="me",
            trained_on="set@1", verdict="by hand",
        )
    )  # fmt: skip
    monkeypatch.setenv("SHARDMILL_RUNS_COPY", str(tmp_path / "new"))
    fresh = TrainConfig.model_validate({"run": {"epochs": 2, "fresh": True}})
    with pytest.raises(UsageError, match="has the alias set@production"):
        train_dataset("set", fresh, root=tmp_path / "datasets", runs=location)
    assert runs.exists(f"{name}/result.json")


@pytest.mark.slow
def test_label_errors_go_on_with_the_folds_of_another_machine(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root, location = tmp_path / "datasets", store.location("folds")
    publish(root, coloured({"train": {"blue": 12, "green": 12}}), name="colours")
    machines = Machines(location, root, tmp_path, monkeypatch, capsys)
    settings = ["data.image_size=16", "data.global_batch_size=8", "run.epochs=1"]
    asked = ["label-errors", "colours", "--folds", "2", "--json"]
    asked += [part for setting in settings for part in ("--set", setting)]
    first = json.loads(machines("a", *asked))
    times = {entry.path: entry.mtime_ns for entry in Storage.at(location).list_files()}
    second = json.loads(machines("b", *asked))
    assert {key: first[key] for key in ("metrics", "num_likely", "stored_in")} == {
        key: second[key] for key in ("metrics", "num_likely", "stored_in")
    }
    assert Path(second["file"]).is_relative_to(tmp_path / "b")
    stored = Storage.at(first["stored_in"] + "?" + location.partition("?")[2])
    assert stored.read_bytes("label-errors.csv") == Path(first["file"]).read_bytes()
    folds = [Path(run).name for run in first["runs"]]
    assert len(folds) == 2
    for fold in folds:
        path = f"{fold}/result.json"
        assert Storage.at(location).entry(path).mtime_ns == times[path], "no fold is trained again"
