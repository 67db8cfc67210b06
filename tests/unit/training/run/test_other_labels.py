"""Whole runs on several labels and on numbers: what they learn, how they resume, what they leave behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest

from shardmill.flows import cli
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import Cancelled, ConfigError, DataError
from shardmill.infra.settings import load_settings
from shardmill.training.config import TrainConfig
from shardmill.training.evaluate import evaluate_run
from shardmill.training.predict import predict
from shardmill.training.results.predictions.comparison import compare
from shardmill.training.results.run_files.run_folder import RunFolder, open_run
from shardmill.training.run.files.summary import summary
from shardmill.training.train import train_dataset
from tests.samples.datasets.published import coloured, patterned, publish, publish_patterned
from tests.samples.training.sessions import StopAfter, last_state, trained

pytest.importorskip("tensorflow")

# Of Keras, while it saves.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

COUNTS = {"train": 48, "validation": 16, "test": 16}
LINEAR = [
    "model.name=tests.samples.models.linear_model", "data.image_size=8", "data.global_batch_size=8",
    "optimizer.learning_rate=0.3", "optimizer.weight_decay=0", "run.epochs=30",
]  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The datasets "multi" and "targets"."""
    root = tmp_path_factory.mktemp("sets")
    publish_patterned(root, COUNTS, several=True, name="multi")
    publish_patterned(root, COUNTS, several=False, name="targets")
    publish(root, coloured({"train": {"a": 4, "b": 4}, "test": {"a": 2}}, size=(8, 8)), name="classes")
    return root


def version_of(root: Path, name: str) -> DatasetVersion:
    from shardmill.infra.dataset.catalog import Catalog

    return Catalog(root).open(name)


def run(root: Path, runs: Path, name: str, *overrides: str) -> dict[str, Any]:
    config = load_settings(TrainConfig, section="train", overrides=[*LINEAR, *overrides])
    result = train_dataset(name, config, root=root, runs=runs)
    assert result is not None
    return result


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def several(root: Path, runs: Path) -> dict[str, Any]:
    return run(root, runs, "multi", "export.formats=['litert']")


@pytest.fixture(scope="module")
def numbers(root: Path, runs: Path) -> dict[str, Any]:
    return run(root, runs, "targets", "export.formats=['litert']")


def pictures(folder: Path) -> list[Path]:
    folder.mkdir()
    colours = {"bright": (240, 235, 230), "red": (220, 20, 10), "dark": (15, 12, 10)}
    for name, colour in colours.items():
        pixels = np.full((12, 12, 3), colour[::-1], np.uint8)
        cv2.imwrite(str(folder / f"{name}.png"), pixels)
    (folder / "text.png").write_text("no image")
    return [folder]


def test_several_labels_are_learned_and_predicted(
    several: dict[str, Any], root: Path, tmp_path: Path
) -> None:
    assert (several["task"], several["classes"]) == ("multi-label", ["red", "green", "blue"])
    figures = several["metrics"]["test"]
    assert figures["mean_average_precision"] > 0.9
    assert figures["per_class"].keys() == {"red", "green", "blue"}
    assert "test       mean average precision" in summary(several)
    assert several["confusion_pictures"] == {}
    assert several["best"]["mean_average_precision"] == max(
        row["validation"]["mean_average_precision"] for row in several["history"]
    )
    assert several["exports"]["litert"]["agreement"] == 1.0
    assert several["exports"]["litert"]["exact_match"] == several["exports"]["litert"]["model_exact_match"]
    opened = open_run(several["run_dir"], tmp_path)
    counts = predict(opened, pictures(tmp_path / "files"), tmp_path / "found.json", "json")
    assert (counts["predicted"], counts["refused"]) == (3, 1)
    rows = [json.loads(line) for line in (tmp_path / "found.json").read_text().splitlines()]
    found = {Path(row["path"]).stem: row["predicted"] for row in rows}
    assert found == {"bright": ["red", "green", "blue"], "red": ["red"], "dark": [], "text": None}
    again = evaluate_run(opened, root, "test")["metrics"]
    assert again["per_class"] == figures["per_class"]


def test_numbers_are_learned_and_predicted(numbers: dict[str, Any], root: Path, tmp_path: Path) -> None:
    assert (numbers["task"], numbers["classes"]) == ("regression", ["brightness", "redness"])
    figures = numbers["metrics"]["test"]
    assert figures["r2"] > 0.9
    assert figures["per_target"]["redness"]["absolute_error"] < 0.1
    assert "test       R² 0.9" in summary(numbers)
    assert numbers["exports"]["litert"]["max_difference"] < 1e-4
    opened = open_run(numbers["run_dir"], tmp_path)
    predict(opened, pictures(tmp_path / "files"), tmp_path / "found.parquet", "parquet")
    rows = pq.read_table(tmp_path / "found.parquet").to_pylist()
    found = {Path(row["path"]).stem: row["predicted"] for row in rows}
    assert found["text"] is None
    brightness, redness = found["red"]
    assert redness > brightness + 0.2
    assert found["bright"][0] > found["red"][0] > found["dark"][0]
    again = evaluate_run(_with_lost_callbacks(opened.path, tmp_path), root, "test")["metrics"]
    assert again["r2"] == pytest.approx(figures["r2"], rel=1e-5)


def _with_lost_callbacks(run: Path, folder: Path) -> RunFolder:
    """A copy of a run that names callbacks of a module that is not there any more."""
    copy = shutil.copytree(run, folder / "runs" / run.name)
    identity = json.loads((copy / "run.json").read_text())
    identity["config"]["run"]["callbacks"] = ["no_longer_there:make"]
    (copy / "run.json").write_text(json.dumps(identity))
    return open_run(copy, folder)


def test_the_page_shows_what_the_task_has(several: dict[str, Any], numbers: dict[str, Any]) -> None:
    labels, values = (Path(one["report"]).read_text(encoding="utf-8") for one in (several, numbers))
    assert "average precision" in labels
    assert "predicted less true" not in labels
    assert values.count("predicted less true") == 4, "two targets on two splits"
    assert "By target" in values


def test_predictions_are_those_of_the_labels(numbers: dict[str, Any]) -> None:
    table = pq.read_table(numbers["predictions"]["test"])
    wanted = sorted(one.values for one in patterned("test", COUNTS["test"], several=False))
    assert np.allclose(sorted(table["target"].to_pylist()), wanted)


def test_runs_of_a_task_are_compared(
    several: dict[str, Any],
    numbers: dict[str, Any],
    root: Path,
    runs: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = run(root, runs, "targets", "run.epochs=1", "optimizer.learning_rate=0.0001")
    files = [Path(one["predictions"]["test"]) for one in (numbers, other)]
    found = compare(*files)
    difference = found.figures["absolute_error"]
    for value, result in ((difference.first, numbers), (difference.second, other)):
        assert value == pytest.approx(result["metrics"]["test"]["absolute_error"])
    assert 0 < difference.low <= difference.second - difference.first <= difference.high
    assert found.only_first > found.only_second
    capsys.readouterr()
    names = [Path(one["run_dir"]).name for one in (numbers, other)]
    assert cli.run(["compare", *names, "--runs", str(runs)]) == 0
    assert capsys.readouterr().out.count("the first is better") == 4, "a smaller error is better"
    with pytest.raises(DataError, match="the first run learned multi-label, the second regression"):
        compare(Path(several["predictions"]["test"]), files[0])


def test_a_run_is_evaluated_only_on_labels_of_its_kind(several: dict[str, Any], root: Path) -> None:
    opened = open_run(several["run_dir"], root)
    with pytest.raises(ConfigError, match=r"targets@1 has numbers; the run .* learned from several labels"):
        evaluate_run(opened, root, "test", "targets")


@pytest.mark.parametrize("name", ["multi", "targets"])
@pytest.mark.parametrize(
    "extra",
    [
        pytest.param([], id="plain"),
        pytest.param(["augment.mixup=0.4"], id="mixed", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_run_ends_in_the_same_weights(
    root: Path, tmp_path: Path, name: str, extra: list[str]
) -> None:
    version = version_of(root, name)
    settings = [*LINEAR, "run.epochs=2", "run.trace_records=true", *extra]
    trained(version, tmp_path / "whole", *settings)
    with pytest.raises(Cancelled):
        trained(version, tmp_path / "parts", *settings, stop=StopAfter(5))
    trained(version, tmp_path / "parts", *settings)
    whole, parts = last_state(tmp_path / "whole"), last_state(tmp_path / "parts")
    assert whole.keys() == parts.keys()
    for variable, values in whole.items():
        assert np.array_equal(values, parts[variable]), variable
    assert (tmp_path / "whole/consumed.jsonl").read_bytes() == (
        tmp_path / "parts/consumed.jsonl"
    ).read_bytes()


@pytest.mark.parametrize("name", ["multi", "targets"])
def test_pictures_and_curves_are_logged(root: Path, tmp_path: Path, name: str) -> None:
    loop, _ = trained(version_of(root, name), tmp_path, *LINEAR, "run.epochs=1")
    figure = "exact_match" if name == "multi" else "absolute_error"
    assert figure in loop.progress.history[0]["train"]
    assert list((tmp_path / "logs" / "validation").iterdir())


@pytest.mark.parametrize("name", ["multi", "targets"])
def test_keras_fits_the_batches(root: Path, name: str) -> None:
    import keras

    from shardmill import open_dataset

    dataset = open_dataset(name, root=root)
    keras.utils.set_random_seed(1)
    image = keras.Input((8, 8, 3))
    colour = keras.layers.GlobalAveragePooling2D()(keras.layers.Rescaling(1 / 255)(image))
    last = "sigmoid" if name == "multi" else None
    model = keras.Model(image, keras.layers.Dense(3 if name == "multi" else 2, activation=last)(colour))
    loss = "binary_crossentropy" if name == "multi" else "mse"
    model.compile(keras.optimizers.Adam(0.1), loss)
    examples = dataset.tf("train", batch_size=8, image_size=8, epochs=8)
    told = model.fit(examples, epochs=8, steps_per_epoch=len(examples) // 8, shuffle=False, verbose=0)
    assert told.history["loss"][-1] < 0.8 * told.history["loss"][0]
    measured = model.evaluate(dataset.tf("test", batch_size=8, image_size=8), verbose=0)
    assert measured < told.history["loss"][0]


@pytest.mark.parametrize("name", ["multi", "targets"])
def test_mixed_batches_have_mixed_labels(root: Path, name: str) -> None:
    from shardmill import open_dataset
    from shardmill.training.config import AugmentSettings

    dataset = open_dataset(name, root=root)
    plain, mixed = (
        next(iter(dataset.tf("train", batch_size=8, image_size=8, augment=AugmentSettings(mixup=mixup))))
        for mixup in (0.0, 0.4)
    )
    labels, found = plain[1].numpy(), mixed[1].numpy()
    partners = labels[np.arange(8) ^ 1]
    low, high = np.minimum(labels, partners), np.maximum(labels, partners)
    assert ((found >= low - 1e-6) & (found <= high + 1e-6)).all()
    assert np.abs(found - labels).max() > 0.01
    apart = np.abs(partners - labels) > 1e-6
    shares = np.where(apart, (found - labels) / np.where(apart, partners - labels, 1), np.nan)
    spread = np.nanmax(shares, axis=1) - np.nanmin(shares, axis=1)
    assert np.nanmax(spread) < 1e-4, "all labels of an example in the same share"
