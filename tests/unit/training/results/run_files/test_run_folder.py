"""Runs are found by name or folder, with a suggestion for a near miss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.errors import CorruptDataError, DataError, NotFoundError
from shardmill.training.config import TrainConfig
from shardmill.training.results.run_files.run_folder import list_runs, open_run

CONFIG = TrainConfig().model_dump(mode="json")


def make(runs: Path, name: str, result: dict[str, Any] | None = None) -> Path:
    folder = runs / name
    folder.mkdir(parents=True)
    identity = {"dataset": "photos@3", "config": {**CONFIG, "reading": {"mode": "indexed"}}}
    (folder / "run.json").write_text(json.dumps(identity))
    if result is not None:
        (folder / "result.json").write_text(json.dumps(result))
    return folder


FINISHED = {"history": [{}, {}], "metrics": {"test": {"accuracy": 0.75}}}


def test_runs_are_listed(tmp_path: Path) -> None:
    make(tmp_path, "photos-v3-bbbb", FINISHED)
    unfinished = make(tmp_path, "photos-v3-aaaa")
    (unfinished / "metrics.jsonl").write_text('{"epoch": 1}\n')
    (tmp_path / "notes").mkdir()
    (tmp_path / ".locks").mkdir()
    one, other = list_runs(tmp_path)
    assert (one.name, one.result, one.epochs_done, one.test_figure) == ("photos-v3-aaaa", None, 1, None)
    assert (other.dataset, other.model, other.epochs_done, other.epochs_wanted, other.test_figure) == (
        "photos@3", "small_cnn", 2, 12, ("accuracy", 0.75),
    )  # fmt: skip
    assert list_runs(tmp_path / "none") == []


def test_a_run_is_named_by_its_folder_or_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(tmp_path / "runs", "photos-v3-aaaa")
    monkeypatch.chdir(tmp_path)
    for named in ("photos-v3-aaaa", str(folder), "runs/photos-v3-aaaa", "runs/photos-v3-aaaa/"):
        assert open_run(named, tmp_path / "runs").path == folder


@pytest.mark.parametrize(
    ("made", "remedy"),
    [
        (["photos-v3-aaaa", "shapes-v1-bbbb"], "did you mean 'photos-v3-aaaa'"),
        (["shapes-v1-bbbb"], "there are: shapes-v1-bbbb"),
        ([], "there are none"),
    ],
)
def test_an_unknown_run_suggests_another(tmp_path: Path, made: list[str], remedy: str) -> None:
    for name in made:
        make(tmp_path, name)
    with pytest.raises(NotFoundError, match="no training run 'photos-v3-aaab'") as caught:
        open_run("photos-v3-aaab", tmp_path)
    assert remedy in str(caught.value.remedy)


def test_unfinished_runs_and_missing_predictions_are_named(tmp_path: Path) -> None:
    make(tmp_path, "going")
    make(tmp_path, "done", FINISHED)
    with pytest.raises(DataError, match="the run going is unfinished"):
        open_run("going", tmp_path).predictions("test")
    with pytest.raises(NotFoundError, match="no predictions of the train split") as caught:
        open_run("done", tmp_path).predictions("train")
    assert "shardmill evaluate done --split train" in str(caught.value.remedy)


def test_the_whole_settings_are_preferred(tmp_path: Path) -> None:
    folder = make(tmp_path, "photos", FINISHED)
    assert TrainConfig.model_validate(open_run("photos", tmp_path).config()) == TrainConfig()
    whole = {**CONFIG, "data": {**CONFIG["data"], "seed": 9}}
    (folder / "environment.json").write_text(json.dumps({"config": whole}))
    assert open_run("photos", tmp_path).config() == whole
    (folder / "run.json").write_text("{")
    with pytest.raises(CorruptDataError, match=r"run\.json cannot be read"):
        open_run("photos", tmp_path)
