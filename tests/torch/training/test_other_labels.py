"""Runs with PyTorch on several labels and on numbers, and their losses by direct formulas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from shardmill import Dataset
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import Cancelled
from shardmill.training.evaluate import evaluate_run
from shardmill.training.predict import predict
from shardmill.training.results.run_files.run_folder import open_run
from shardmill.training.run.session import train
from shardmill.training.tasks.multi_label import MultiLabel
from shardmill.training.tasks.regression import Regression
from shardmill.training.tasks.task import Mixed
from shardmill.training.torch.operations import OPERATIONS
from shardmill.training.train import train_dataset
from tests.samples.datasets.published import coloured, publish, publish_patterned
from tests.samples.training.rounding import near
from tests.samples.training.torch_runs import Interrupting, consumed, settings, weights
from tests.samples.training.unknown_classes import (
    check_figures,
    publish_with_unknown,
    unknown_classes_by_numpy,
    with_unknown,
)

COUNTS = {"train": 60, "validation": 10, "test": 10}
LEARN = ("run.epochs=12", "optimizer.learning_rate=0.03")
RANDOM = np.random.default_rng(5)
OUTPUTS = RANDOM.normal(size=(8, 3))
SEVERAL = (RANDOM.random((8, 3)) > 0.5).astype(np.float64)
PARTIAL = with_unknown(SEVERAL)
NUMBERS = RANDOM.normal(size=(8, 3)) * 10 + 100
SHARES = np.array([0.7, 0.7, 0.2, 0.2, 1.0, 1.0, 0.4, 0.4])


@pytest.fixture(scope="module")
def patterned_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("patterned")
    publish_patterned(root, COUNTS, several=True, name="multi")
    publish_patterned(root, COUNTS, several=False, name="targets")
    return root


def run(root: Path, runs: Path, name: str, *overrides: str) -> dict[str, Any]:
    result = train_dataset(name, settings(*overrides), root=root, runs=runs)
    assert result is not None
    return result


def labels_of(labels: np.ndarray, *, mixed: bool) -> tuple[torch.Tensor, Mixed | None]:
    partners = Mixed(torch.tensor(labels[np.arange(8) ^ 1]), torch.tensor(SHARES))
    return torch.tensor(labels), partners if mixed else None


@pytest.mark.parametrize("mixed", [False, True])
def test_losses_and_scores(mixed: bool) -> None:
    shares, outputs = SHARES[:, None], torch.tensor(OUTPUTS)

    def targets(labels: np.ndarray) -> np.ndarray:
        return shares * labels + (1 - shares) * labels[np.arange(8) ^ 1] if mixed else labels

    wanted, likely = targets(SEVERAL), 1 / (1 + np.exp(-OUTPUTS))
    smooth = 0.9 * wanted + 0.05
    expected = -(smooth * np.log(likely) + (1 - smooth) * np.log(1 - likely)).mean(axis=1)
    several, labels = MultiLabel(OPERATIONS, 3, label_smoothing=0.1), labels_of(SEVERAL, mixed=mixed)
    assert several.training_losses(outputs, *labels).numpy() == near(expected)
    hits = ((OUTPUTS > 0) == (wanted >= 0.5)).all(axis=1)
    assert several.scores(outputs, *labels).tolist() == hits.tolist()
    wanted, mean, std = targets(NUMBERS), (100.0, 90.0, 110.0), (10.0, 5.0, 20.0)
    numbers, labels = Regression(OPERATIONS, mean, std), labels_of(NUMBERS, mixed=mixed)
    expected = np.square(OUTPUTS - (wanted - mean) / std).mean(axis=1)
    assert numbers.training_losses(outputs, *labels).numpy() == near(expected)
    errors = np.abs(OUTPUTS * std + mean - wanted).mean(axis=1)
    assert numbers.scores(outputs, *labels).numpy() == near(errors)


@pytest.mark.parametrize("mixed", [False, True])
def test_unknown_classes_count_for_nothing(mixed: bool) -> None:
    expected, hits = unknown_classes_by_numpy(OUTPUTS, PARTIAL, SHARES if mixed else None, smoothing=0.1)
    outputs = torch.tensor(OUTPUTS, requires_grad=True)
    partial, labels = MultiLabel(OPERATIONS, 3, 0.1, is_partial=True), labels_of(PARTIAL, mixed=mixed)
    losses = partial.training_losses(outputs, *labels)
    assert losses.detach().numpy() == near(expected)
    assert partial.scores(outputs.detach(), *labels).tolist() == hits.tolist()
    losses.sum().backward()
    assert torch.isfinite(outputs.grad).all()
    assert (outputs.grad[torch.tensor(np.isnan(PARTIAL))] == 0).all() or mixed


def test_several_labels(patterned_root: Path, tmp_path: Path) -> None:
    result = run(patterned_root, tmp_path, "multi", *LEARN)
    figures = result["metrics"]["test"]
    assert (result["task"], result["classes"]) == ("multi-label", ["red", "green", "blue"])
    assert figures["mean_average_precision"] > 0.85
    assert result["exports"]["torch"]["agreement"] == 1.0
    opened = open_run(result["run_dir"], tmp_path)
    assert evaluate_run(opened, patterned_root, "test")["metrics"]["per_class"] == figures["per_class"]
    cv2.imwrite(str(tmp_path / "one.png"), np.full((30, 40, 3), 240, np.uint8))
    predict(opened, [tmp_path / "one.png"], tmp_path / "found.json", "json")
    (row,) = map(json.loads, (tmp_path / "found.json").read_text().splitlines())
    chosen = [name for name, value in row["probabilities"].items() if value > 0.5]
    assert row["predicted"] == chosen


def test_a_data_set_that_lacks_classes(tmp_path: Path) -> None:
    root, refs = tmp_path / "data", publish_with_unknown(tmp_path / "data")
    result = run(root, tmp_path / "runs", "; ".join([*refs, "missing classes are ignored"]), "run.epochs=2")
    check_figures(result, root, refs)


def test_numbers(patterned_root: Path, tmp_path: Path) -> None:
    result = run(patterned_root, tmp_path, "targets", *LEARN)
    figures = result["metrics"]["test"]
    assert result["task"] == "regression"
    assert figures["r2"] > 0.5
    assert result["best"]["r2"] == max(row["validation"]["r2"] for row in result["history"])
    assert result["exports"]["torch"]["max_difference"] < 1e-3
    opened = open_run(result["run_dir"], tmp_path)
    again = evaluate_run(opened, patterned_root, "test")["metrics"]
    assert again["r2"] == pytest.approx(figures["r2"], rel=1e-5)
    for name, grey in (("dark", 40), ("bright", 210)):
        cv2.imwrite(str(tmp_path / f"{name}.png"), np.full((20, 20, 3), grey, np.uint8))
    files = [tmp_path / "dark.png", tmp_path / "bright.png"]
    predict(opened, files, tmp_path / "found.json", "json")
    rows = list(map(json.loads, (tmp_path / "found.json").read_text().splitlines()))
    dark, bright = (row["predicted"]["brightness"] for row in rows)
    assert bright > dark + 0.2


@pytest.mark.parametrize("name", ["multi", "targets"])
@pytest.mark.parametrize("extra", [(), ("augment.mixup=0.4",)], ids=["plain", "mixed"])
def test_an_interrupted_run_ends_in_the_same_weights(
    patterned_root: Path, tmp_path: Path, name: str, extra: tuple[str, ...]
) -> None:
    version = Catalog(patterned_root).open(name)
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    train(settings(*extra), version, tmp_path / "whole")
    with pytest.raises(Cancelled):
        train(settings(*extra), version, tmp_path / "parts", None, Interrupting(5))  # type: ignore[arg-type]
    train(settings(*extra), version, tmp_path / "parts")
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[key], parts[key]) for key in whole)
    assert consumed(tmp_path / "whole") == consumed(tmp_path / "parts")


def test_a_run_on_several_data_sets_resumes_where_it_stopped(tmp_path: Path) -> None:
    counts = {"train": {"a": 13, "b": 9}, "validation": {"a": 2, "b": 2}}
    publish(tmp_path, coloured(counts), name="photos")
    publish(tmp_path, coloured({"train": {"b": 31, "c": 3}}, size=(30, 30)), name="web", container="none")
    version = Catalog(tmp_path).open_view("photos; train += web")
    shares = ("data.mixture_weights=0.6,0.4", "data.mixture_end=last", "run.devices=one")
    result = train(settings(*shares), version, tmp_path / "whole")
    assert [*result["metrics"]["validation"]["by_data_set"]] == ["photos@1"]
    with pytest.raises(Cancelled):
        train(settings(*shares), version, tmp_path / "parts", None, Interrupting(7))  # type: ignore[arg-type]
    train(settings(*shares), version, tmp_path / "parts")
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(torch.equal(whole[key], parts[key]) for key in whole)
    assert consumed(tmp_path / "whole") == consumed(tmp_path / "parts")
    seen = [name for _, _, ids in consumed(tmp_path / "whole") for name in ids]
    of_web = set(Dataset(Catalog(tmp_path).open("web")).table("train").ids(np.arange(34)))
    is_web = np.array([name in of_web for name in seen])
    ahead = np.cumsum(is_web) - 0.4 * np.arange(1, is_web.size + 1)
    assert abs(ahead).max() <= 0.5 + 1e-9
    assert of_web <= set(seen), "an epoch ends when the last is through"
