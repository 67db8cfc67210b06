"""Training runs in a bucket: killed on one machine, continued on another, evaluated from a third."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from shardmill.flows import cli
from shardmill.flows.maintain import trained_versions
from shardmill.flows.train_when import TrainWhen, due
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import LockedError, NotFoundError, UsageError
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.config import TrainConfig
from shardmill.training.promotion.purged import PURGED_FILE
from shardmill.training.run.files.identity import run_identity, run_name
from shardmill.training.run.files.stored import fetch_runs, kept_in_store, opened_run
from shardmill.training.train import train_dataset
from tests.samples.datasets.published import coloured, publish
from tests.samples.images.photos import make_photos
from tests.samples.preparing.prepared import run as prepare
from tests.samples.ranks.outer_ranks import tf_config
from tests.samples.stores.object_store import ObjectStore, serve_with_credentials
from tests.samples.training.finished_runs import RESULT_JSON, RUN_JSON
from tests.samples.training.trainer import settings

COUNTS = {"train": {"a": 24, "b": 12}, "validation": {"a": 4, "b": 4}}


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with serve_with_credentials("runs-of-tests") as running:
        yield running


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("datasets")
    publish(root, coloured(COUNTS), name="set", shards_per_split=2)
    return root


def start(machine: Path, root: Path, runs: str, config: dict[str, Any]) -> subprocess.Popen[str]:
    """Train as on another machine: only the store is shared."""
    command = [
        sys.executable,
        "-m",
        "shardmill.training.train",
        "set",
        "--json",
        "--root",
        str(root),
        "--runs",
        runs,
    ]
    return subprocess.Popen(
        [*command, "--config-json", json.dumps(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SHARDMILL_RUNS_COPY": str(machine)},
    )


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


@pytest.mark.slow
def test_a_run_is_continued_on_another_machine_and_ends_as_undisturbed(
    store: ObjectStore, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = store.location("runs")
    config = settings(run={"epochs": 40, "checkpoint_every_seconds": 0.5})
    first = start(tmp_path / "one", root, runs, config)
    deadline = time.monotonic() + 300
    while not any("/checkpoints/" in key for key in store.all_keys("runs")):
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    first.kill()
    first.communicate()
    stored = store.all_keys("runs")
    assert not [key for key in stored if key.endswith("result.json")]
    time.sleep(1)
    # The lease of the dead process: it is seen at once that it is dead, on the same machine.
    done = finish(start(tmp_path / "two", root, runs, config))
    alone = finish(start(tmp_path / "none", root, str(tmp_path / "runs"), config))
    assert done["metrics"] == alone["metrics"]
    figures = [{"loss": epoch["train"]["loss"]} for epoch in done["history"]]
    assert figures == [{"loss": epoch["train"]["loss"]} for epoch in alone["history"]]
    name = Path(done["stored_in"]).name
    kept = {key.removeprefix(f"runs/{name}/") for key in store.all_keys(f"runs/{name}")}
    made = {
        str(path.relative_to(tmp_path / "runs" / name))
        for path in (tmp_path / "runs" / name).rglob("*")
        if path.is_file()
    }
    assert {path for path in made if not path.startswith("logs/")} <= kept
    monkeypatch.setenv("SHARDMILL_RUNS_COPY", str(tmp_path / "three"))
    assert finish(start(tmp_path / "three", root, runs, config))["unchanged"]
    command = [sys.executable, "-m", "shardmill.training.evaluate", name, "--split", "train", "--json"]
    done = subprocess.run(
        [*command, "--root", str(root), "--runs", runs],
        capture_output=True,
        text=True,
        timeout=400,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1])["metrics"]["num_examples"] == 36
    assert f"runs/{name}/predictions-train.parquet" in store.all_keys(f"runs/{name}")


def test_results_of_runs_are_read_without_their_checkpoints(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDMILL_RUNS_COPY", str(tmp_path))
    runs = Storage.at(store.location("listed"))
    for name in ("one", "two"):
        runs.write_atomic(f"{name}/run.json", RUN_JSON)
        runs.write_atomic(f"{name}/result.json", RESULT_JSON)
        runs.write_atomic(f"{name}/checkpoints/1.npz", b"large")
    copies = fetch_runs(store.location("listed"))
    found = sorted(str(path.relative_to(copies)) for path in copies.glob("[!.]*/*"))
    assert found == ["one/result.json", "one/run.json", "two/result.json", "two/run.json"]
    with opened_run("one", store.location("listed")) as run:
        assert run.finished() == {"history": []}
        (run.path / "evaluations").mkdir()
        (run.path / "evaluations" / "new").write_bytes(b"1")
    assert runs.read_bytes("one/evaluations/new") == b"1"
    assert runs.exists("one/checkpoints/1.npz")
    with (
        pytest.raises(NotFoundError, match="did you mean 'two'"),
        opened_run("twa", store.location("listed")),
    ):
        pass


def test_reading_results_leaves_the_copy_of_a_training_alone(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDMILL_RUNS_COPY", str(tmp_path))
    location = store.location("trained")
    Storage.at(location).write_atomic("one/run.json", b"old")
    with kept_in_store(location, "one") as copies:
        copy = Storage.at(copies / "one")
        copy.write_atomic("run.json", b"new")
        copy.write_atomic("figures.jsonl", b"not uploaded yet")
        assert fetch_runs(location) == copies
        assert {entry.path for entry in copy.list_files()} == {"figures.jsonl", "run.json"}
        assert copy.read_bytes("run.json") == b"new"
    assert Storage.at(location).read_bytes("one/run.json") == b"new"


def test_an_evaluation_uploads_no_checkpoint_of_a_training_that_died_here(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDMILL_RUNS_COPY", str(tmp_path))
    location = store.location("continued")
    runs = Storage.at(location)
    with kept_in_store(location, "one") as copies:
        copy = Storage.at(copies / "one")
        copy.write_atomic("run.json", RUN_JSON)
        copy.write_atomic("checkpoints/1.npz", b"first")
    copy.delete("checkpoints/1.npz")
    copy.write_atomic("checkpoints/2.npz", b"never uploaded")
    with opened_run("one", location):
        copy.write_atomic("predictions", b"1")
    found = {entry.path for entry in runs.child("one").list_files()}
    assert found == {"checkpoints/1.npz", "predictions", "run.json"}


def test_a_run_that_the_store_lacks_is_not_shown(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDMILL_RUNS_COPY", str(tmp_path))
    runs = Storage.at(store.location("removed"))
    for name in ("one", "two"):
        runs.write_atomic(f"{name}/run.json", b"{}")
    copies = fetch_runs(store.location("removed"))
    runs.delete_tree("one")
    fetch_runs(store.location("removed"))
    assert [path.parent.name for path in copies.glob("*/run.json")] == ["two"]


def test_what_was_trained_in_a_store_is_known_to_schedules_and_to_maintenance(
    store: ObjectStore, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDMILL_RUNS_COPY", str(tmp_path))
    location, config = store.location("scheduled"), TrainConfig()
    version = Catalog(root).open("set")
    identity = run_identity(config, version)
    identity["config"]["run"]["epochs"] = 1
    runs = Storage.at(location).child(run_name(config, version))
    runs.write_atomic("run.json", json.dumps(identity).encode())
    runs.write_atomic("result.json", b'{"epochs": 1, "history": [], "stopped_early": null}')
    found = due("set", config, TrainWhen(new_records=1), str(root), location)
    assert (found.is_due, "0 new records" in found.reason) == (False, True)
    assert trained_versions("set", location) == [1]


def test_the_mark_of_a_purge_reaches_the_store(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDMILL_RUNS_COPY", str(tmp_path / "copies"))
    datasets = tmp_path / "datasets"
    name = prepare(make_photos(tmp_path / "photos", {"a": 4, "b": 4}), datasets)["dataset"]
    location, version = store.location("purged"), Catalog(datasets).open(name)
    run = Storage.at(location).child("one")
    run.write_atomic("run.json", json.dumps(run_identity(TrainConfig(), version)).encode())
    rows = version.storage.read_bytes(version.manifest.inputs[0].path)
    uri = pq.read_table(io.BytesIO(rows))["uri"][0].as_py()
    command = ["purge", name, "--source", uri, "--apply", "--root", str(datasets)]
    assert cli.run([*command, "--runs", location]) == 0
    assert len(json.loads(run.read_bytes(PURGED_FILE))) == 1


def test_a_first_rank_waits_for_the_lease_of_the_one_before_it(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if that one had been on a machine that is gone; a command that a person starts does not wait."""
    monkeypatch.setenv("SHARDMILL_RUNS_COPY", str(tmp_path))
    location = store.location("leased")
    other = Storage.at(location)
    with contextlib.ExitStack() as earlier:
        earlier.enter_context(other.exclusive_lock(".locks/one", "the same training run"))
        with pytest.raises(LockedError), kept_in_store(location, "one"):
            pass
        freed = threading.Timer(3, earlier.close)
        freed.start()
        with kept_in_store(location, "one", is_started_again=True):
            assert freed.finished.is_set()
        freed.join()


def test_other_ranks_look_into_the_store_and_keep_no_copy(
    store: ObjectStore, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDMILL_RUNS_COPY", str(tmp_path / "copies"))
    monkeypatch.setenv("TF_CONFIG", tf_config()[1]["TF_CONFIG"])
    location, config = store.location("finished"), TrainConfig()
    version = Catalog(root).open("set")
    run = Storage.at(location).child(run_name(config, version))
    run.write_atomic("result.json", b'{"epochs": %d, "history": []}' % config.run.epochs)
    assert train_dataset("set", config, root=root, runs=location) is None
    assert not (tmp_path / "copies").exists()


@pytest.mark.parametrize("launcher", ["slurm", "kubernetes"])
def test_files_of_a_job_are_in_the_store_and_here(
    store: ObjectStore, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str
) -> None:
    monkeypatch.setenv("SHARDMILL_RUNS_COPY", str(tmp_path))
    location = store.location(f"jobs-{launcher}")
    ranks = {"launcher": launcher, "workers": "2", "slurm": {"state": "/shared/state"}}
    config = TrainConfig.model_validate({"ranks": ranks, "run": {"devices": "cpu:2"}})
    written = train_dataset("set", config, root=root, runs=location)
    assert written is not None
    (file,) = map(Path, written["files"])
    assert str(file) in written["submit"]
    assert location in file.read_text()
    stored = Storage.at(location)
    (path,) = (entry.path for entry in stored.list_files("jobs"))
    assert stored.read_bytes(path) == file.read_bytes()
    fetch_runs(location)
    assert file.exists(), "reading the runs removes no job"


def test_a_run_of_a_ray_cluster_is_refused_in_a_store(root: Path) -> None:
    config = TrainConfig.model_validate({"ranks": {"launcher": "ray", "workers": "2"}})
    with pytest.raises(UsageError, match="cannot keep its run in s3://bucket/runs"):
        train_dataset("set", config, root=root, runs="s3://bucket/runs")
