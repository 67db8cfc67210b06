"""Likely label errors of several classes, of numbers and of objects, by direct loops and planted errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.reading import load_table
from shardmill.training.results.predictions.file import PredictionsWriter
from shardmill.training.results.predictions.label_errors import find_label_errors
from shardmill.training.results.predictions.label_errors.found import LabelErrors
from shardmill.training.tasks.registry import KINDS
from tests.samples.datasets.published import coloured, publish

NAMES = ["bird", "cat", "dog"]
NUM = 240


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> DatasetVersion:
    root = tmp_path_factory.mktemp("datasets")
    publish(root, coloured({"test": dict.fromkeys(NAMES, NUM // 3), "train": {"cat": 1}}), name="set")
    return Catalog(root).open("set")


def found_in(version: DatasetVersion, folder: Path, task: str, labels: Any, rows: Any) -> LabelErrors | None:
    """Write predictions of the test split in two batches, and search them."""
    table = load_table(version, "test")
    with PredictionsWriter(Storage.at(folder), version, table, kind=KINDS[task]) as writer:
        for part in np.array_split(np.arange(NUM), 2):
            own = labels[part] if isinstance(labels, np.ndarray) else {k: v[part] for k, v in labels.items()}
            taken = {name: column[part] for name, column in rows.items()}
            writer.add(part, own, {"losses": np.ones(len(part), np.float32), **taken})
    return find_label_errors({"test": folder / "predictions-test.parquet"})


def places(version: DatasetVersion, found: LabelErrors) -> list[int]:
    """Return the ordinals of the listed records, in their order."""
    numbers = {name: ordinal for ordinal, name in enumerate(load_table(version, "test").ids(np.arange(NUM)))}
    return [numbers[error.id] for error in found.listed]


def several_labels(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return labels [N, 3], some turned, and probabilities of a model that mostly knows the right ones."""
    chance = np.random.default_rng(seed)
    right = chance.random((NUM, 3)) < [0.2, 0.5, 0.7]
    logits = np.where(right, 2.0, -2.0) + chance.normal(0, 1.2, right.shape)
    turned = chance.random((NUM, 3)) < 0.06
    return (right ^ turned).astype(np.float32), (1 / (1 + np.exp(-logits))).astype(np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_several_classes_agree_with_direct_loops(version: DatasetVersion, tmp_path: Path, seed: int) -> None:
    labels, probabilities = several_labels(seed)
    rows = {"predicted": probabilities > 0.5, "probabilities": probabilities}
    found = found_in(version, tmp_path, "multi-label", labels, rows)
    assert found is not None
    wrong = np.zeros((NUM, 3), bool)
    estimated = 0.0
    for kind in range(3):
        shares = np.stack([1.0 - probabilities[:, kind].astype(float), probabilities[:, kind]], axis=1)
        least = [shares[labels[:, kind] == answer, answer].mean() for answer in (0, 1)]
        joint = np.zeros((2, 2))
        for row in range(NUM):
            sure = [answer for answer in (0, 1) if shares[row, answer] >= least[answer]]
            if sure:
                likeliest, given = max(sure, key=lambda one: shares[row, one]), int(labels[row, kind])
                joint[given, likeliest] += 1
                wrong[row, kind] = likeliest != given and shares[row].argmax() != given
        for answer in (0, 1):
            of_answer = (labels[:, kind] == answer).sum()
            estimated += of_answer * joint[answer, 1 - answer] / joint[answer].sum()
    assert sorted(places(version, found)) == np.flatnonzero(wrong.any(axis=1)).tolist()
    assert found.estimated == pytest.approx(estimated)
    assert sum(count for *_, count in found.pairs) == wrong.sum() > 10
    for row, error in zip(places(version, found), found.listed, strict=True):
        corrected = [name for name, has in zip(NAMES, (labels[row] > 0.5) ^ wrong[row], strict=True) if has]
        assert error.suggested_label == (", ".join(corrected) or "none")
        gains = np.abs(2 * probabilities[row].astype(float) - 1)[wrong[row]]
        assert error.score == pytest.approx(gains.max(), abs=1e-6)


def test_a_class_that_the_model_does_not_know_is_not_looked_at(
    version: DatasetVersion, tmp_path: Path
) -> None:
    labels, probabilities = several_labels(0)
    probabilities[:, 1] = np.random.default_rng(1).random(NUM)
    rows = {"predicted": probabilities > 0.5, "probabilities": probabilities}
    found = found_in(version, tmp_path, "multi-label", labels, rows)
    assert found is not None
    assert found.listed
    assert not any("cat" in pair for given, suggested, _ in found.pairs for pair in (given, suggested))
    part = labels.copy()
    part[:100, 2] = np.nan  # nobody has looked for dogs there
    some = found_in(version, tmp_path, "multi-label", part, rows)
    assert some is not None
    named = {place for place in places(version, found) if place < 100}
    assert {place for place in places(version, some) if place < 100} < named
    rows = {"predicted": probabilities > 2, "probabilities": np.zeros_like(probabilities)}
    blind = found_in(version, tmp_path, "multi-label", labels, rows)
    assert blind is not None
    assert "tells no class well enough" in str(blind.withheld)


def test_numbers_far_off_are_found(version: DatasetVersion, tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    right = chance.normal([100, -3, 0], [20, 1, 1], (NUM, 3))
    # The third number is one that the model does not know.
    predicted = np.column_stack([right[:, :2] + chance.normal(0, [3, 0.1], (NUM, 2)), np.zeros(NUM)])
    planted = {17: (0, 140.0), 90: (0, -80.0), 200: (1, 2.5)}
    labels = right.copy()
    for row, (number, off) in planted.items():
        labels[row, number] += off
    labels, predicted = labels.astype(np.float32), predicted.astype(np.float32)
    found = found_in(version, tmp_path, "regression", labels, {"predicted": predicted})
    assert found is not None
    errors = labels.astype(float) - predicted
    distances = np.abs(errors - np.median(errors, axis=0))
    distances /= 1.4826 * np.median(distances, axis=0)
    far = np.flatnonzero((distances[:, :2] > 3.5).any(axis=1))
    assert set(places(version, found)) == set(far.tolist()) >= set(planted)
    assert set(places(version, found)[: len(planted)]) == set(planted)
    score = {row: error.score for row, error in zip(places(version, found), found.listed, strict=True)}
    assert score[17] == pytest.approx(1 - 3.5 / distances[17, 0])
    assert found.estimated is None
    rows = {"predicted": np.zeros_like(predicted)}
    blind = found_in(version, tmp_path, "regression", labels, rows)
    assert blind is not None
    assert "explains less than 50%" in str(blind.withheld)
    exact = found_in(version, tmp_path, "regression", labels, {"predicted": labels})
    assert exact is not None
    assert (exact.num_likely, exact.withheld) == (0, None)


def objects_and_findings() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return two objects an image, a box of 0.3 to the left and one to the right, all found as annotated."""
    boxes = np.zeros((NUM, 3, 4), np.float32)
    boxes[:, 0], boxes[:, 1] = [0.1, 0.05, 0.4, 0.35], [0.5, 0.6, 0.8, 0.9]
    classes = np.full((NUM, 3), -1, np.int32)
    classes[:, 0], classes[:, 1] = np.arange(NUM) % 3, (np.arange(NUM) + 1) % 3
    labels = {"boxes": boxes, "classes": classes, "crowds": np.zeros((NUM, 3), bool)}
    scores = np.where(classes >= 0, 0.8, 0).astype(np.float32)
    return labels, {"boxes": boxes.copy(), "classes": classes.copy(), "scores": scores}


def test_planted_errors_of_objects_are_found_by_kind(version: DatasetVersion, tmp_path: Path) -> None:
    labels, rows = objects_and_findings()
    labels["classes"][10, 1] = -1  # nobody annotated the object that the model finds
    labels["classes"][20, 0] = (labels["classes"][20, 0] + 1) % 3
    labels["boxes"][30, 0] += np.float32(0.16)  # to below a half of overlap: 0.14² / (2 · 0.09 - 0.14²)
    labels["boxes"][40, 2], labels["classes"][40, 2] = [0.1, 0.7, 0.3, 0.9], 2  # and the model sees nothing
    labels["classes"][50, 0], labels["crowds"][50, 0] = labels["classes"][50, 1], True
    labels["classes"][50, 1] = -1
    labels["boxes"][50, 0] = [0.4, 0.5, 0.9, 1.0]  # a crowd around what is found
    rows["scores"][60, 0] = 0.3  # no threshold is reached, and something is seen
    rows["boxes"][70, 2], rows["classes"][70, 2] = rows["boxes"][70, 1], rows["classes"][70, 0]
    rows["scores"][70, 2] = 0.75  # a second finding in the place of an object that is found
    found = found_in(version, tmp_path, "detection", labels, rows)
    assert found is not None
    told = dict(zip(places(version, found), found.listed, strict=True))
    of = {row: NAMES[int(labels["classes"][row, 0])] for row in (20, 30)}
    assert told.keys() == {10, 20, 30, 40, 50}
    assert told[10].suggested_label == f"{NAMES[(10 + 1) % 3]} is missing"
    assert told[20].suggested_label == f"{of[20]} is rather {NAMES[20 % 3]}"
    assert told[30].suggested_label == f"{of[30]} is misplaced"
    overlap = 0.14**2 / (2 * 0.09 - 0.14**2)
    assert told[30].score == pytest.approx(0.8 * (1 - overlap), rel=1e-4)
    assert told[40].suggested_label == "dog is not there"
    assert told[50].suggested_label == f"{NAMES[50 % 3]} is missing", "the crowd takes the other one alone"
    assert all(error.annotation is not None for error in found.listed)
    assert (found.num_likely, found.num_examples) == (5, NUM)


def test_a_detector_that_finds_little_is_not_believed(version: DatasetVersion, tmp_path: Path) -> None:
    labels, rows = objects_and_findings()
    rows["scores"] *= 0.5
    found = found_in(version, tmp_path, "detection", labels, rows)
    assert found is not None
    assert "finds less than 50%" in str(found.withheld)
    assert found.to_result(tmp_path) == {"num_examples": NUM, "withheld": found.withheld}


def test_labels_that_are_all_the_same_have_no_errors(version: DatasetVersion, tmp_path: Path) -> None:
    labels, rows = objects_and_findings()
    nothing = {**labels, "classes": np.full_like(labels["classes"], -1)}
    assert found_in(version, tmp_path, "detection", nothing, rows) is None
    zeros = np.zeros((NUM, 3), np.float32)
    found = {"predicted": zeros > 0.5, "probabilities": zeros}
    assert found_in(version, tmp_path, "multi-label", zeros, found) is None
    masks = {"predicted": np.zeros((NUM, 2, 2), np.uint8)}
    assert found_in(version, tmp_path, "segmentation", np.zeros((NUM, 2, 2), np.uint8), masks) is None
