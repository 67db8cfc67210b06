"""The commands about training runs, on one finished run."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest

import shardmill
from shardmill.flows import cli
from shardmill.training import evaluate as evaluate_job
from shardmill.training import predict as predict_job
from tests.samples.datasets.published import coloured, publish
from tests.samples.training.trainer import settings, train_here

COUNTS = {
    "train": {"blue": 20, "green": 20},
    "validation": {"blue": 4, "green": 4},
    "test": {"blue": 9, "green": 8},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A root with a dataset and a finished run, and the run's result."""
    root = tmp_path_factory.mktemp("runs")
    publish(root / "datasets", coloured(COUNTS), name="colours")
    return root, train_here(root, "colours", settings(run={"epochs": 2}))


def command(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    """Run a command; returns its standard output, or its standard error where it fails."""
    assert cli.run(arguments) == status
    captured = capsys.readouterr()
    return captured.out if status == 0 else captured.err


def test_evaluate_measures_what_training_measured(
    trained: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    root, result = trained
    name, places = (
        Path(result["run_dir"]).name,
        ["--runs", str(root / "runs"), "--root", str(root / "datasets")],
    )
    before = Path(result["predictions"]["test"]).read_bytes()
    assert evaluate_job.main([name, *places, "--json"]) == 0, "in this process, which has TensorFlow already"
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["metrics"] == result["metrics"]["test"]
    assert Path(result["predictions"]["test"]).read_bytes() == before
    shown = command(capsys, "evaluate", name, "--split", "train", *places)
    assert f"{name} on colours@1, train: 40 examples" in shown
    rows = pq.read_table(Path(result["run_dir"]) / "predictions-train.parquet")
    assert rows.num_rows == 40
    accuracy = np.mean(rows["label_index"].to_numpy() == rows["predicted_index"].to_numpy())
    assert re.search(rf"  accuracy +{accuracy:.2%}\n", shown), "in percent, as train says it"
    loss = float(shown.split("  loss ", 1)[1].split()[0])
    assert loss == pytest.approx(np.mean(rows["loss"].to_numpy()), abs=1e-4)
    report = Path(result["report"]).read_text(encoding="utf-8")
    assert 'id="train"' in report, "the report has every split that was evaluated"
    error = command(capsys, "evaluate", name, "--split", "trial", *places, status=2)
    assert "--split trial: there is no such split" in error


def test_predict_keeps_the_order_and_says_why_not(
    trained: tuple[Path, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, result = trained
    name, places = Path(result["run_dir"]).name, ["--runs", str(root / "runs")]
    pictures = coloured({"test": {"blue": 3, "green": 2}}, size=(40, 60))
    for number, picture in enumerate(pictures):
        cv2.imwrite(str(tmp_path / f"{number}.png"), picture.pixels[:, :, ::-1])
    (tmp_path / "1b.jpg").write_bytes(b"\xff\xd8\xff but no image")
    assert cli.run(["predict", name, str(tmp_path), "nothing.png", "--format", "json", *places]) == 2
    said = capsys.readouterr()
    assert "error: nothing.png: no such file or folder" in said.err
    rows = [json.loads(line) for line in said.out.splitlines()]
    names = ["0.png", "1.png", "1b.jpg", "2.png", "3.png", "4.png", "nothing.png"]
    assert [Path(row["path"]).name for row in rows] == names
    assert [row["reason"] is None for row in rows] == [True, True, False, True, True, True, False]
    assert rows[-1]["reason"] == "unreadable"
    kept = [row for row in rows if row["reason"] is None]
    assert all(sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-5) for row in kept)
    tf = pytest.importorskip("tensorflow")
    served = tf.saved_model.load(result["export_dir"]).signatures["serving_default"]
    images = [Path(row["path"]).read_bytes() for row in kept]
    wanted = served(image_bytes=tf.constant(images))["probabilities"].numpy()
    assert [list(row["probabilities"].values()) for row in kept] == [
        pytest.approx(row, abs=0.02) for row in wanted.tolist()
    ]
    table = tmp_path / "out.parquet"
    words = [*[row["path"] for row in kept], "--format", "parquet", "--out", str(table), *places]
    assert predict_job.main([name, *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["predicted"] == 5
    broken = command(capsys, "predict", name, str(tmp_path / "1b.jpg"), *places, status=3)
    assert "error: no file could be predicted" in broken
    assert pq.read_table(table)["predicted"].to_pylist() == [row["predicted"] for row in kept]
    paths = [row["path"] for row in rows if row["reason"] != "unreadable"]
    assert shardmill.predict(name, paths, runs=root / "runs") == {
        "run": name, "predicted": 5, "refused": 1, "predictions": rows[:-1]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("paths", "out", "error", "message"),
    [
        ([], None, "UsageError", "paths is empty"),
        ("nothing.png", None, "NotFoundError", "nothing.png: no such file"),
        ("broken.jpg", "rows.txt", "UsageError", r"none of the endings \.csv"),
        pytest.param(
            "broken.jpg",
            None,
            "DataError",
            r"no file could be predicted \(broken.jpg: ",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "empty", "rows.csv", "DataError", "there is no file in the folders", marks=pytest.mark.slow
        ),
    ],
)
def test_predict_from_python_refuses_mistakes(
    paths: Any,
    out: str | None,
    error: str,
    message: str,
    trained: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("broken.jpg").write_bytes(b"no image")
    with pytest.raises(getattr(shardmill, error), match=message):
        shardmill.predict(trained[1]["run_dir"], paths, out=out)


def test_runs_are_listed_and_compared(
    trained: tuple[Path, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, result = trained
    for name in ("colours-v1-one", "colours-v1-other"):
        shutil.copytree(result["run_dir"], tmp_path / name, ignore=shutil.ignore_patterns("export", "check*"))
    (tmp_path / "colours-v1-other" / "result.json").unlink()
    places = ["--runs", str(tmp_path)]
    listed = json.loads(command(capsys, "runs", *places, "--json"))["runs"]
    assert [(row["run"], row["state"], row["epochs_done"]) for row in listed] == [
        ("colours-v1-one", "finished", 2),
        ("colours-v1-other", "unfinished", 2),
    ]
    assert listed[0]["test_accuracy"] == listed[0]["test_figure"]["accuracy"]
    assert listed[1]["test_accuracy"] is listed[1]["test_figure"] is None
    assert "2 of 2" in command(capsys, "runs", *places)
    error = command(capsys, "compare", "colours-v1-one", "colours-v1-other", *places, status=3)
    assert "colours-v1-other is unfinished" in error
    same = command(capsys, "compare", "colours-v1-one", "colours-v1-one", *places)
    assert "test: 17 records" in same
    assert same.count("no clear difference") == 4, "accuracy, balanced accuracy, macro F1 and loss"
    assert f"{listed[0]['test_accuracy']:.2%}" in same
    assert "+0.00 points" in same
    error = command(capsys, "compare", "colours-v1-one", "colours-v1-onn", *places, status=2)
    assert "did you mean 'colours-v1-one'" in error


def test_runs_are_compared_on_another_version(
    trained: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    root, result = trained
    publish(root / "datasets", coloured({**COUNTS, "test": {"blue": 3, "green": 5}}), name="others")
    name = Path(result["run_dir"]).name
    places = ["--runs", str(root / "runs"), "--root", str(root / "datasets")]
    shown = command(capsys, "compare", name, name, "--dataset", "others", *places)
    assert "others@1, test: 8 records" in shown
    found = json.loads(command(capsys, "compare", name, name, "--dataset", "others@1", *places, "--json"))
    assert (found["dataset"], found["num_examples"]) == ("others@1", 8)
    own = json.loads(command(capsys, "compare", name, name, "--dataset", "colours@1", *places, "--json"))
    assert own["num_examples"] == 17, "predictions of its own version are those that training wrote"


def test_a_model_is_evaluated_though_its_own_version_is_gone(trained: tuple[Path, dict[str, Any]]) -> None:
    """The classes are those of the run's result; a version with others is refused."""
    root, result = trained
    publish(root / "datasets", coloured(COUNTS), name="same")
    publish(root / "datasets", coloured({"test": {"blue": 2, "red": 2}}), name="foreign")
    manifest = root / "datasets" / "colours" / "manifests" / "000001.json"
    kept = manifest.rename(root / "kept.json")
    try:
        name = Path(result["run_dir"]).name
        places = {"root": root / "datasets", "runs": root / "runs"}
        found = shardmill.evaluate(name, dataset="same@1", **places)
        assert (found["dataset"], found["version"], found["split"]) == ("same", 1, "test")
        assert found["metrics"] == result["metrics"]["test"]
        with pytest.raises(shardmill.NotFoundError, match="no dataset 'colours'"):
            shardmill.evaluate(name, dataset="foreign@1", **places)
    finally:
        kept.rename(manifest)


def test_the_report_of_a_run_is_drawn_again(
    trained: tuple[Path, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, result = trained
    path = Path(result["report"])
    path.unlink()
    places = ["--runs", str(root / "runs"), "--root", str(root / "datasets")]
    assert command(capsys, "report", path.parent.name, *places).strip() == str(path)
    assert 'id="test"' in path.read_text(encoding="utf-8")
    copy = tmp_path / "copy.html"
    shown = command(capsys, "report", path.parent.name, "--out", str(copy), "--json", *places)
    assert json.loads(shown) == {"run": path.parent.name, "report": str(copy), "rebuilt": True}
    assert copy.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "xml"], "--format 'xml' is not known"),
        (["--format", "parquet"], "Parquet cannot be printed"),
        (["--json"], "--json prints the counts of a file"),
    ],
)
def test_predict_refuses_what_it_cannot_print(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in command(capsys, "predict", "some-run", "image.jpg", *arguments, status=2)
