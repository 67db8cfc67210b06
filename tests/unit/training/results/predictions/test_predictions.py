"""Files of predictions, and what is found in them, on predictions made up."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import uri_of
from shardmill.training.reading import SplitTable, load_table
from shardmill.training.results.predictions.comparison import compare
from shardmill.training.results.predictions.file import (
    PredictionsWriter,
    probabilities_of,
    read_classes,
    read_predictions,
)
from shardmill.training.results.predictions.hardest import find_hardest
from shardmill.training.results.predictions.label_errors import find_label_errors
from shardmill.training.results.predictions.label_errors.found import COLUMNS
from shardmill.training.tasks.segmentation import SegmentationKind
from tests.samples.datasets.published import coloured, publish

NAMES = ["bird", "caf\udce9", "cat"]
NUM = 60


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> DatasetVersion:
    root = tmp_path_factory.mktemp("datasets")
    publish(root, coloured({"test": dict.fromkeys(NAMES, NUM // 3), "train": {"cat": 1}}), name="set")
    return Catalog(root).open("set")


@pytest.fixture(scope="module")
def table(version: DatasetVersion) -> SplitTable:
    return load_table(version, "test")


Write = Callable[[np.ndarray], Path]


@pytest.fixture
def write(version: DatasetVersion, table: SplitTable, tmp_path: Path) -> Write:
    """Write predictions of the whole split in three batches; returns the path."""

    def written(probabilities: np.ndarray) -> Path:
        with PredictionsWriter(Storage.at(tmp_path), version, table) as writer:
            for part in np.array_split(np.arange(NUM), 3):
                labels, rows = table.label[part], probabilities[part].astype(np.float32)
                own = np.take_along_axis(rows, labels[:, None], axis=1)[:, 0]
                found = {"losses": -np.log(own), "predicted": rows.argmax(1), "probabilities": rows}
                writer.add(part, labels, found)
        return tmp_path / "predictions-test.parquet"

    return written


def confident_in(table: SplitTable) -> np.ndarray:
    """Return probabilities of a model that knows all labels, surer of later records."""
    sure = np.linspace(0.6, 0.9, NUM)
    probabilities = np.repeat(((1 - sure) / 2)[:, None], 3, axis=1)
    probabilities[np.arange(NUM), table.label] = sure
    return probabilities


def test_a_row_for_each_record(version: DatasetVersion, table: SplitTable, write: Write) -> None:
    probabilities = confident_in(table)
    path = write(probabilities)
    rows = pq.read_table(path)
    assert rows["id"].to_pylist() == table.ids(np.arange(NUM))
    indexes = [version.index(shard) for shard in version.shards("test")]
    assert rows["source_uri"].to_pylist() == [
        uri or "" for index in indexes for uri in index["source_uri"].to_pylist()
    ]
    names = [uri_of(name) for name in version.manifest.classes]
    assert read_classes(path) == names
    assert rows["label"].to_pylist() == [names[label] for label in table.label]
    assert rows["predicted"].to_pylist() == rows["label"].to_pylist()
    parts = list(read_predictions(path, ["probabilities"]))
    assert np.allclose(np.concatenate([probabilities_of(part) for part in parts]), probabilities, atol=1e-6)


def test_masks_are_read_few_at_a_time(version: DatasetVersion, table: SplitTable, tmp_path: Path) -> None:
    kind = SegmentationKind()
    masks = np.zeros((NUM, 8, 8), np.uint8)
    rows = {"losses": np.ones(NUM, np.float32), "predicted": masks}
    with PredictionsWriter(Storage.at(tmp_path), version, table, kind=kind) as writer:
        for _ in range(3):
            writer.add(np.arange(NUM), masks, rows)
    parts = list(read_predictions(tmp_path / "predictions-test.parquet", ["label"]))
    assert [part.num_rows for part in parts] == [128, 52]


def test_a_row_group_holds_few_bytes(version: DatasetVersion, table: SplitTable, tmp_path: Path) -> None:
    """Noise does not become smaller as PNG: each record has two masks of 1 MiB."""
    noise = np.random.default_rng(0).integers(0, 255, (1, 1024, 1024), np.uint8)
    rows = {"losses": np.ones(1, np.float32), "predicted": noise}
    with PredictionsWriter(Storage.at(tmp_path), version, table, kind=SegmentationKind()) as writer:
        for ordinal in range(6):
            writer.add(np.array([ordinal]), noise, rows)
    file = pq.ParquetFile(tmp_path / "predictions-test.parquet")
    assert file.num_row_groups > 1


def test_nothing_appears_if_evaluation_fails(
    version: DatasetVersion, table: SplitTable, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError), PredictionsWriter(Storage.at(tmp_path), version, table):
        raise RuntimeError("a record is damaged")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "predictions-test.parquet").write_bytes(b"no Parquet")
    with pytest.raises(CorruptDataError, match=r"predictions-test\.parquet cannot be read"):
        read_classes(tmp_path / "predictions-test.parquet")


def test_the_hardest_examples_are_wrong_and_sorted(table: SplitTable, write: Write) -> None:
    probabilities = confident_in(table)
    wrong = [7, 31, 52]
    for row in wrong:  # the surer the model, the harder the example
        probabilities[row] = np.roll(probabilities[row], 1)
    found = find_hardest(write(probabilities), 10)
    assert [example.id for example in found] == table.ids(np.array(wrong[::-1]))
    assert all(example.label != example.predicted for example in found)
    assert found[0].predicted_probability > found[0].label_probability
    assert found[0].loss == pytest.approx(-np.log(found[0].label_probability), rel=1e-5)
    assert find_hardest(write(probabilities), 1) == found[:1]


def test_planted_label_errors_are_found_and_ranked(table: SplitTable, write: Write) -> None:
    probabilities = confident_in(table)
    planted = [3, 40, 55]
    for row in planted:
        probabilities[row] = np.roll(np.where(np.arange(3) == table.label[row], 0.98, 0.01), 1)
    path = write(probabilities)
    found = find_label_errors({"test": path})
    assert found is not None
    assert (found.num_examples, found.num_likely) == (NUM, 3)
    assert {error.id for error in found.listed} == set(table.ids(np.array(planted)))
    assert found.estimated == pytest.approx(
        sum(
            (of_label := [row for row in planted if table.label[row] == label])
            and len(of_label) / confident * (NUM // 3)
            for label, confident in enumerate(_confident_counts(table, probabilities))
        )
    )
    rows = list(csv.DictReader(io.StringIO(found.to_csv().decode("utf-8"))))
    assert tuple(rows[0]) == COLUMNS
    assert [row["split"] for row in rows] == ["test"] * 3
    assert all(row["given_label"] != row["suggested_label"] for row in rows)
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores, reverse=True) == pytest.approx([0.97] * 3, abs=1e-5)


def _confident_counts(table: SplitTable, probabilities: np.ndarray) -> list[int]:
    """Return for each label how many examples reach the threshold of some class, by direct loops."""
    thresholds = [probabilities[table.label == label, label].mean() for label in range(3)]
    reach = [any(row[k] >= thresholds[k] - 1e-7 for k in range(3)) for row in probabilities]
    return [sum(np.array(reach)[table.label == label]) for label in range(3)]


def test_an_example_whose_label_the_model_prefers_is_no_error(table: SplitTable, write: Write) -> None:
    """Its probability of another class reaches the threshold of that class, which is low."""
    probabilities = confident_in(table)
    of_first, of_second = np.flatnonzero(table.label == 0), np.flatnonzero(table.label == 1)
    probabilities[of_second] = [0.2, 0.45, 0.35]  # the threshold of the second class is 0.45
    probabilities[of_first[0]] = [0.5, 0.5 - 1e-3, 1e-3]
    probabilities[of_first[1]] = [0.5 - 1e-3, 0.5, 1e-3]
    found = find_label_errors({"test": write(probabilities)})
    assert found is not None
    assert [error.id for error in found.listed] == table.ids(of_first[1:2])
    assert found.num_likely == 1


@pytest.mark.parametrize(("num_wrong", "is_withheld"), [(6, False), (7, True)])
def test_errors_of_a_model_too_weak_to_tell_are_withheld(
    table: SplitTable, write: Write, tmp_path: Path, num_wrong: int, is_withheld: bool
) -> None:
    """Of three classes it must recognise two thirds: 14 of the 20 examples of each class, but not 13."""
    probabilities = confident_in(table)
    for label in range(3):
        rows = np.flatnonzero(table.label == label)[:num_wrong]
        probabilities[rows] = np.roll(probabilities[rows], 1, axis=1)
    found = find_label_errors({"test": write(probabilities)})
    assert found is not None
    assert (found.withheld is not None) == is_withheld
    (tmp_path / "label-errors.csv").write_text("of an earlier model")
    found.write_csv(Storage.at(tmp_path))
    assert (tmp_path / "label-errors.csv").exists() != is_withheld
    result = found.to_result(tmp_path / "label-errors.csv")
    if is_withheld:
        assert found.withheld is not None
        assert "recognises 65% of the examples of a class on average; below 67%" in found.withheld
        assert result == {"num_examples": NUM, "withheld": found.withheld}
    else:
        assert result["num_likely"] == len(found.listed) > 0


def test_each_record_of_several_data_sets_says_which_it_is_of(tmp_path: Path) -> None:
    """Both have the same images under the same names; the second model's errors are all in the second."""
    pictures = coloured({"test": dict.fromkeys(NAMES[::2], 10)})
    for name in ("first", "second"):
        publish(tmp_path, pictures, name=name)
    joined = Catalog(tmp_path).open_view("first; second")
    table = load_table(joined, "test")
    sure = np.eye(2)[table.label] * 0.8 + 0.1
    sure[[21, 36]] = sure[[21, 36], ::-1]
    found = {"predicted": sure.argmax(1), "probabilities": sure.astype(np.float32)}
    found["losses"] = -np.log(sure[np.arange(40), table.label]).astype(np.float32)
    with PredictionsWriter(Storage.at(tmp_path), joined, table) as writer:
        writer.add(np.arange(40), table.label, found)
    path = tmp_path / "predictions-test.parquet"
    assert pq.read_table(path)["data_set"].to_pylist() == ["first@1"] * 20 + ["second@1"] * 20
    errors = find_label_errors({"test": path})
    assert errors is not None
    rows = list(csv.DictReader(io.StringIO(errors.to_csv().decode())))
    assert [row["data_set"] for row in rows] == ["second@1"] * 2
    hardest = find_hardest(path, 5)
    assert [one.place for one in hardest] == [f"second@1: {one.source_uri}" for one in hardest] != []
    assert [compare(path, path, data_set=ref).num_examples for ref in ("first@1", "second@1")] == [20, 20]
    assert compare(path, path).num_examples == 40


def test_labels_without_doubt_have_no_errors(table: SplitTable, write: Write) -> None:
    found = find_label_errors({"test": write(confident_in(table))})
    assert found is not None
    assert (found.num_likely, found.estimated, list(found.listed)) == (0, 0.0, [])
    assert find_label_errors({}) is None
