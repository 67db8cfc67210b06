"""A whole run on several data sets: the records that it consumes, figures of each, and lineage.

``tests/torch/training/test_other_labels.py`` has one that resumes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from shardmill import open_dataset
from shardmill.flows.maintain import trained_versions
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.exports.export import export
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.format.known_features import labels_feature
from shardmill.infra.settings import load_settings
from shardmill.training.config import TrainConfig
from shardmill.training.evaluate import evaluate_run
from shardmill.training.evaluate import summary as evaluation_summary
from shardmill.training.promotion.purged import affected_runs
from shardmill.training.reading import load_table
from shardmill.training.results.predictions.comparison import compare
from shardmill.training.results.run_files.run_folder import RunFolder, open_run
from shardmill.training.run.files.summary import summary
from shardmill.training.tasks.settings import settings_for
from shardmill.training.train import train_dataset
from tests.samples.datasets.published import Picture, coloured, publish, publish_patterned
from tests.samples.training.sessions import SMALL
from tests.samples.training.unknown_classes import check_figures, publish_with_unknown

pytest.importorskip("tensorflow")

# Of Keras, while it saves.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

REF = "photos@1; web@1?label != 'coat'"
SHARES = ["data.mixture_weights=0.7,0.3", "run.trace_records=true", "run.epochs=2"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sets")
    photos = {"train": {"hat": 12, "shoe": 9}, "validation": {"hat": 5, "shoe": 3}, "test": {"hat": 4}}
    web = {"train": {"bag": 7, "coat": 2, "hat": 9}, "validation": {"bag": 4, "hat": 2}}
    publish(root, coloured(photos, size=(8, 8)), name="photos")
    publish(root, coloured(web, size=(8, 10)), name="web", container="none")
    publish_patterned(root, {"train": 4}, several=True, name="multi")
    shades = [Picture("train", "", np.full((8, 8, 3), 9 * n, np.uint8), (n % 2,)) for n in range(3)]
    publish(root, shades, name="other", classes=["red", "rose"], feature=labels_feature("shades"))
    return root


@pytest.fixture(scope="module")
def result(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    config = load_settings(TrainConfig, section="train", overrides=[*SMALL, *SHARES])
    found = train_dataset(REF, config, root=root, runs=tmp_path_factory.mktemp("runs"))
    assert found is not None
    return found


@pytest.fixture
def run(result: dict[str, Any]) -> RunFolder:
    return open_run(result["run_dir"], Path(result["run_dir"]).parent)


def test_the_records_of_each_step_are_those_of_the_reader(root: Path, run: RunFolder) -> None:
    dataset = open_dataset(["photos", "web?label != 'coat'"], root, weights=[0.7, 0.3])
    table = dataset.table("train")
    lines = [json.loads(line) for line in (run.path / "consumed.jsonl").read_text().splitlines()]
    batches = [*dataset.batches("train", batch_size=8, image_size=8, epochs=2)]
    assert [line["ids"] for line in lines] == [table.ids(batch.ordinals) for batch in batches]
    sets = np.concatenate([table.data_set_of(batch.ordinals) for batch in batches])
    assert np.concatenate([line["data_sets"] for line in lines]).tolist() == sets.tolist()
    assert (np.abs(np.cumsum(sets == 0) - 0.7 * np.arange(1, sets.size + 1)) <= 0.5 + 1e-9).all()


def test_figures_are_those_of_each_and_of_all(result: dict[str, Any], run: RunFolder, root: Path) -> None:
    found = result["metrics"]["validation"]
    rows = pq.read_table(run.path / "predictions-validation.parquet").to_pylist()
    refs = ["photos@1", "web@1?label != 'coat'"]
    assert [*found["by_data_set"]] == refs
    assert found["num_examples"] == 14
    for ref, figures in found["by_data_set"].items():
        dataset = open_dataset(ref, root)
        own = set(dataset.table("validation").ids(np.arange(len(dataset.table("validation")))))
        right = [row["label"] == row["predicted"] for row in rows if row["id"] in own]
        assert figures["num_examples"] == len(own) == len(right)
        assert figures["accuracy"] == pytest.approx(np.mean(right))
        assert figures["loss"] == pytest.approx(np.mean([row["loss"] for row in rows if row["id"] in own]))
    assert [*result["metrics"]["test"]["by_data_set"]] == refs[:1], "the other has no test split"
    assert "    photos@1: accuracy" in summary(result)
    assert '<h3 class="sub">By data set</h3>' in (run.path / "report.html").read_text()
    again = evaluate_run(run, root, "validation")
    assert again["metrics"] == found
    assert "  photos@1: accuracy" in evaluation_summary(again)


def test_the_run_names_its_data_sets(result: dict[str, Any], run: RunFolder, root: Path) -> None:
    assert (run.dataset, run.dataset_name, run.dataset_version) == (REF, "photos+web", 1)
    assert result["data_sets"] == ["photos@1", "web@1?label != 'coat'"]
    assert run.name.startswith("photos+web-v1-")
    assert (run.versions_of("web"), run.versions_of("photos"), run.versions_of("other")) == ({1}, {1}, set())
    assert trained_versions("web", str(run.path.parent)) == [1]
    catalog = Catalog(root)
    index = catalog.open("web@1").index(catalog.open("web@1").shards("train")[0])
    coat = index["id"][index["label"].to_pylist().index(1)].as_py()
    seen = index["id"][index["label"].to_pylist().index(2)].as_py()
    (affected,) = affected_runs(catalog, run.path.parent, "web", [coat, seen], [1])
    assert (affected.num_learned, affected.num_shown) == (1, 0), "the view has no coat"
    assert affected_runs(catalog, run.path.parent, "photos", [seen], [1]) == []


def test_near_duplicates_are_reported(result: dict[str, Any], run: RunFolder) -> None:
    """Of one colour each but for noise, the pictures have no structure: nothing looks the same."""
    assert pq.read_table(run.path / "near-duplicates.parquet").num_rows == 0
    assert not any("near-duplicates" in note for note in result["notes"])


def test_classes_that_a_data_set_lacks_are_ignored_by_choice(tmp_path: Path) -> None:
    refs = publish_with_unknown(tmp_path)
    config = load_settings(TrainConfig, section="train", overrides=[*SMALL])
    text = "; ".join([*refs, "missing classes are ignored"])
    result = train_dataset(text, config, root=tmp_path, runs=tmp_path / "runs")
    assert result is not None
    check_figures(result, tmp_path, refs)
    run = open_run(result["run_dir"], tmp_path / "runs")
    again = evaluate_run(run, tmp_path, "validation")["metrics"]
    assert again == result["metrics"]["validation"]
    path = run.predictions("validation", run.dataset)
    same = compare(path, path)
    assert same.figures["mean_average_precision"].first == pytest.approx(again["mean_average_precision"])


def test_what_a_model_cannot_learn_is_refused(root: Path, tmp_path: Path) -> None:
    config = load_settings(TrainConfig, section="train", overrides=[*SMALL])
    multi = Catalog(root).open_view("multi; multi?width > 0")
    assert settings_for(config, multi).run.best_metric == "mean_average_precision"
    with pytest.raises(
        ConfigError, match=r"multi@1 has no class 'rose': nothing says .* 'missing classes are"
    ):
        settings_for(config, Catalog(root).open_view("multi; other"))
    absent = Catalog(root).open_view("multi; other; missing classes are absent")
    settings_for(config, absent)
    labels = load_table(absent, "train").labels_of(np.arange(4, 7)).tolist()
    assert sorted(labels) == [[0, 0, 0, 1], [1, 0, 0, 0], [1, 0, 0, 0]], "of red, green, blue and rose"
    with pytest.raises(ConfigError, match="has no meaning for one class an image"):
        settings_for(config, Catalog(root).open_view("photos; web; missing classes are ignored"))
    refused = {
        "several data sets need an exact order": ["reading.mode=streaming"],
        "divides one data set": ["data.folds=2", "data.left_out_fold=1"],
    }
    for message, overrides in refused.items():
        config = load_settings(TrainConfig, section="train", overrides=[*SMALL, *overrides])
        with pytest.raises(ConfigError, match=message):
            train_dataset(REF, config, root=root, runs=tmp_path / "runs")
    config = load_settings(TrainConfig, section="train", overrides=[*SMALL, "data.mixture_weights=1,2,3"])
    with pytest.raises(ConfigError, match="3 numbers for 2 data sets"):
        train_dataset(REF, config, root=root, runs=tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists(), "a refused run leaves no folder"
    with pytest.raises(UsageError, match="export each by itself"):
        export(Catalog(root).open_view(REF), tmp_path / "exported")
