"""Training from a published dataset to an exported model, as a user runs it."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from shardmill.flows import cli
from shardmill.infra import progress
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import ConfigError
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.metrics.confusion import confusion_matrix
from shardmill.training.reading import load_table
from shardmill.training.reading.shard_reader import open_records
from tests.samples.datasets.keys import make_keys
from tests.samples.datasets.published import Picture, coloured, publish
from tests.samples.strict_json import strict_documents
from tests.samples.training.rounding import EPSILON, near
from tests.samples.training.steps import skip_unless_computable
from tests.samples.training.trainer import Trainer, settings, train, train_here

# Names of folders can be anything: a slash of another alphabet, quotes, markup, bytes that are no UTF-8.
ODD_NAMES = ["<b>&\"'", "caf\udce9", "naïve ∕ 中文 🙂"]
COUNTS = {
    "train": {ODD_NAMES[0]: 40, ODD_NAMES[1]: 30, ODD_NAMES[2]: 13},
    "validation": {ODD_NAMES[0]: 5, ODD_NAMES[1]: 5, ODD_NAMES[2]: 3},
    "test": {ODD_NAMES[0]: 6, ODD_NAMES[1]: 6, ODD_NAMES[2]: 7},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A root with a dataset, a finished run and the keys that sign its exports, and the run's result."""
    root = tmp_path_factory.mktemp("trained")
    publish(root / "datasets", coloured(COUNTS), name="colours")
    signed = {"signing_key": str(make_keys(root).private)}
    run = {"epochs": 6, "log_every_steps": 1, "trace_records": True}
    return root, train_here(root, "colours", settings(run=run, export=signed))


def test_the_result_says_what_came_out(trained: tuple[Path, dict[str, Any]]) -> None:
    root, result = trained
    assert Path(result["run_dir"]).parent == root / "runs"
    assert Path(result["run_dir"]).name.startswith("colours-v1-")
    expected = {
        "dataset": "colours", "version": 1, "epochs": 6, "steps": 6 * 11, "global_batch_size": 8,
        "num_replicas": 1, "model": "small_cnn", "unchanged": False, "notes": [],
    }  # fmt: skip
    assert {key: result[key] for key in expected} == expected
    assert result["images_per_second"] > 0
    assert 0 <= result["input_wait_fraction"] <= 1
    assert [row["epoch"] for row in result["history"]] == [1, 2, 3, 4, 5, 6]
    for split in ("validation", "test"):
        figures = result["metrics"][split]
        assert figures["accuracy"] >= 0.9, "colours are learnt in no time"
        assert set(figures["per_class"]) == set(ODD_NAMES)
        for name, row in figures["per_class"].items():
            assert row["support"] == COUNTS[split][name]
        assert sum(map(sum, figures["confusion_matrix"])) == sum(COUNTS[split].values())
        assert Path(result["confusion_pictures"][split]).read_text().startswith("<svg")
    assert list(Path(result["tensorboard_dir"]).glob("*/events*"))


def test_the_run_folder_explains_the_run(trained: tuple[Path, dict[str, Any]]) -> None:
    _, result = trained
    folder = Path(result["run_dir"])
    for split in ("validation", "test"):
        rows = pq.read_table(result["predictions"][split])
        assert rows.num_rows == sum(COUNTS[split].values())
        confusion = confusion_matrix(rows["label_index"].to_numpy(), rows["predicted_index"].to_numpy(), 3)
        assert confusion.tolist() == result["metrics"][split]["confusion_matrix"]
        assert np.mean(rows["loss"].to_numpy()) == near(result["metrics"][split]["loss"])
        assert (folder / f"reliability-{split}.svg").read_text().startswith("<svg")
    epochs = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["validation_macro_f1"] for row in epochs] == [
        row["validation"]["macro_f1"] for row in result["history"]
    ]
    assert pq.read_table(folder / "metrics.parquet").to_pylist() == epochs
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["dataset"]["version"] == 1
    assert environment["devices"] == result["devices"]
    assert environment["config"]["run"]["epochs"] == 6
    assert result["label_errors"]["num_examples"] == 32
    assert "</html>" in Path(result["report"]).read_text(encoding="utf-8")
    assert (folder / "label-errors.csv").read_text().startswith("id,source_uri,split,given_label,")


def test_all_that_a_run_writes_is_strict_json(trained: tuple[Path, dict[str, Any]]) -> None:
    counts = strict_documents(trained[0])
    assert counts.keys() == {".json", ".jsonl", ".npz", ".parquet"}
    assert counts[".jsonl"] > 6 * 11, "the trace, the curve and the epochs"


def test_every_record_was_consumed_once_an_epoch(trained: tuple[Path, dict[str, Any]]) -> None:
    root, result = trained
    table = load_table(Catalog(root / "datasets").open("colours"), "train")
    trace = Path(result["run_dir"]) / "consumed.jsonl"
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [(line["epoch"], line["step"]) for line in lines] == [(e, s) for e in range(6) for s in range(11)]
    for epoch in range(6):
        ids = [record for line in lines if line["epoch"] == epoch for record in line["ids"]]
        assert sorted(ids) == sorted(table.ids(np.arange(len(table))))


def test_a_run_signs_its_exports(trained: tuple[Path, dict[str, Any]]) -> None:
    root, result = trained
    run_dir, key = Path(result["run_dir"]), str(root / "team.pub")
    signatures = {path.name for path in run_dir.glob("*.sig")}
    assert signatures == {"export.sig", "model-input.json.sig", "model.weights.h5.sig"}
    words = ["--public-key", key, "--runs", str(run_dir.parent)]
    assert cli.run(["verify", "--run", run_dir.name, *words]) == 0


@pytest.fixture(scope="module")
def served(trained: tuple[Path, dict[str, Any]]) -> Any:
    """The exported model, from files to outputs."""
    tf = pytest.importorskip("tensorflow")
    return tf.saved_model.load(trained[1]["export_dir"]).signatures["serving_default"]


def test_the_exported_model_predicts_what_evaluation_measured(
    trained: tuple[Path, dict[str, Any]], served: Any
) -> None:
    tf = pytest.importorskip("tensorflow")
    root, result = trained
    version = Catalog(root / "datasets").open("colours")
    table = load_table(version, "test")
    records = open_records(version, table).read_many(np.arange(len(table)))
    out = served(image_bytes=tf.constant([record.image for record in records]))
    labels = np.array([record.label for record in records])
    predicted = out["label"].numpy()
    assert confusion_matrix(labels, predicted, 3).tolist() == result["metrics"]["test"]["confusion_matrix"]
    measured = pq.read_table(result["predictions"]["test"]).sort_by("id")["probabilities"].to_pylist()
    served_of = dict(zip(table.ids(np.arange(len(table))), out["probabilities"].numpy(), strict=True))
    # Another batch size and another graph add up in another order. A loss is no measure: near a probability
    # of 1 the rounding of the probability is a large part of the loss.
    found = [served_of[name] for name in sorted(served_of)]
    np.testing.assert_allclose(found, measured, rtol=0, atol=64 * EPSILON)
    names = [name.decode("utf-8", "surrogateescape") for name in out["class_name"].numpy().tolist()]
    assert names == [version.manifest.classes[label] for label in predicted]


def test_the_exported_model_takes_png(served: Any) -> None:
    tf = pytest.importorskip("tensorflow")
    pixels = coloured({"test": {"a": 1, "b": 1}}, size=(33, 90))[0].pixels
    png, bmp_like = tf.io.encode_png(pixels), tf.io.encode_jpeg(pixels, quality=100)
    out = served(image_bytes=tf.stack([png, bmp_like]))["probabilities"].numpy()
    assert out.shape == (2, 3)
    assert out[0] == pytest.approx(out[1], abs=0.05)


@pytest.mark.slow
def test_a_model_of_grey_records_sees_grey(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    colours = coloured({"train": {"a": 12, "b": 12}})
    grey = [Picture(one.split, one.label_name, one.pixels[:, :, :1]) for one in colours]
    publish(tmp_path / "datasets", grey, name="grey")
    result = train_here(tmp_path, "grey", settings(run={"epochs": 1}))
    served = tf.saved_model.load(result["export_dir"]).signatures["serving_default"]
    pixels = colours[0].pixels
    luminance = np.rint(pixels @ [0.299, 0.587, 0.114]).astype(np.uint8)[:, :, np.newaxis]
    images = [tf.io.encode_png(pixels), tf.io.encode_png(luminance), tf.io.encode_png(pixels[:, :, :1])]
    out = served(image_bytes=tf.stack(images))["probabilities"].numpy()
    assert out[0] == near(out[1])
    assert out[0] != near(out[2]), "another grey is another answer"


FAILING = {"callbacks": ["tests.samples.training.keras_callbacks:make_failing"], "epochs": 2}


def test_a_callback_that_fails_is_named_with_its_line(trained: tuple[Path, dict[str, Any]]) -> None:
    with pytest.raises(
        ConfigError, match=r"keras_callbacks\.py, line \d+, failed: KeyError: 'no_such_"
    ) as caught:
        train_here(trained[0], "colours", settings(run=FAILING))
    assert str(caught.value.remedy).startswith("mend it: it belongs to run.callbacks = 'tests.")


@pytest.mark.slow
def test_a_callback_that_fails_is_tried_once_by_ranks(trained: tuple[Path, dict[str, Any]]) -> None:
    config = settings(run={**FAILING, "epochs": 3}, ranks={"workers": "2"})
    status, _, err = Trainer(trained[0], "colours", config).finish()
    assert status == 2
    assert "keras_callbacks.py, line " in err
    (run,) = [path for path in (trained[0] / "runs").iterdir() if (path / "logs" / "ranks").is_dir()]
    assert len((run / "logs" / "ranks" / "restarts.jsonl").read_text().splitlines()) == 1


@pytest.mark.slow
def test_a_model_of_ones_own_may_give_logits_of_half_precision(tmp_path: Path) -> None:
    publish(
        tmp_path / "datasets", coloured({split: COUNTS[split] for split in ("train", "test")}), name="set"
    )
    skip_unless_computable("bfloat16")
    model = {"name": "tests.samples.models.linear_model"}
    result = train(tmp_path, "set", settings(model=model, run={"epochs": 1, "mixed_precision": "bfloat16"}))
    assert result["metrics"]["test"]["num_examples"] == sum(COUNTS["test"].values())
    assert np.isfinite(result["metrics"]["test"]["loss"])


def test_a_finished_run_returns_its_result_at_once(trained: tuple[Path, dict[str, Any]]) -> None:
    root, result = trained
    config = settings(run={"epochs": 6, "log_every_steps": 5, "trace_records": True, "devices": "one"})
    assert train(root, "colours@1", config) == {**result, "unchanged": True}


def test_sigterm_saves_a_checkpoint_and_the_same_run_goes_on(
    trained: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    _, unbroken = trained
    config = settings(run={"epochs": 6, "log_every_steps": 1, "trace_records": True})
    publish(tmp_path / "datasets", coloured(COUNTS), name="colours")
    first = Trainer(tmp_path, "colours", config)
    assert first.signal_after(25, signal.SIGTERM)
    status, _, err = first.finish()
    assert status == 75, err
    assert "error: stopped on request" in err
    run_dir = tmp_path / "runs" / Path(unbroken["run_dir"]).name
    saved = [entry.path for entry in Storage.at(run_dir / "checkpoints").list_files()]
    steps = len((run_dir / "consumed.jsonl").read_text().splitlines())
    assert f"step-{steps:09d}.npz" in saved, "the checkpoint is that of the last step consumed"
    said: list[str] = []
    forget = progress.subscribe(lambda event: said.append(str(event.get("message"))))
    result = train_here(tmp_path, "colours", config)
    forget()
    assert any(message.startswith("resuming at epoch 3") for message in said), said
    assert [row["epoch"] for row in result["history"]] == [1, 2, 3, 4, 5, 6]
    consumed = (run_dir / "consumed.jsonl").read_bytes()
    assert consumed == (Path(unbroken["run_dir"]) / "consumed.jsonl").read_bytes()
