"""The history of a run: figures of each epoch, and its environment."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow.parquet as pq

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.digests import sha256_hex
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.config import TrainConfig
from shardmill.training.results.run_files.environment import describe_environment
from shardmill.training.results.run_files.history import HistoryFiles
from tests.samples.datasets.published import coloured, publish
from tests.samples.strict_json import strict

FIRST = {"epoch": 1, "step": 5, "train": {"loss": 2.0, "accuracy": 0.1}}
SECOND = {"epoch": 2, "step": 10, "train": {"loss": 1.0, "accuracy": 0.5}, "validation": {"loss": 1.5}}


def test_epochs_stand_in_both_files(tmp_path: Path) -> None:
    files = HistoryFiles(Storage.at(tmp_path))
    files.write([FIRST])
    files.write([FIRST, SECOND])
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[0] == {"epoch": 1, "step": 5, "train_loss": 2.0, "train_accuracy": 0.1}
    rows = pq.read_table(tmp_path / "metrics.parquet").to_pylist()
    assert rows == [{**lines[0], "validation_loss": None}, lines[1]]


def test_a_figure_that_is_not_finite_is_null_in_both_files(tmp_path: Path) -> None:
    """As it is in the history of a checkpoint, which a resumed run writes again."""
    for loss in (math.nan, None):
        HistoryFiles(Storage.at(tmp_path)).write([{**FIRST, "validation": {"loss": loss, "accuracy": 0.5}}])
        (line,) = [strict(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
        assert (line["validation_loss"], line["validation_accuracy"]) == (None, 0.5)
        table = pq.read_table(tmp_path / "metrics.parquet")
        assert table.to_pylist() == [line]
        assert str(table.schema.field("validation_loss").type) == "double"


def test_the_environment_names_code_data_and_settings(tmp_path: Path) -> None:
    publish(tmp_path, coloured({"train": {"a": 2, "b": 1}}), name="set")
    version = Catalog(tmp_path).open("set")
    config = TrainConfig.model_validate({"data": {"seed": 7}})
    found = describe_environment(config, version, ["/device:CPU:0"])
    assert found["seed"] == 7
    assert found["code"]["shardmill"]
    assert found["dataset"]["manifest_sha256"] == sha256_hex(
        (tmp_path / "set" / "manifests" / "000001.json").read_bytes()
    )
    assert TrainConfig.model_validate(found["config"]) == config
    assert found["packages"]["numpy"]
    assert json.loads(json.dumps(found)) == found
