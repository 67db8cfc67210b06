"""Whole runs with PyTorch in this process: their files, how they resume, and the sums of their steps."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from shardmill import Dataset
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import Cancelled, ConfigError, Diverged, EnvironmentFault
from shardmill.infra.format.records import unframe
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.evaluate import evaluate_run
from shardmill.training.export.model_input import read_model_input
from shardmill.training.order import order_from_settings
from shardmill.training.predict import predict
from shardmill.training.results.run_files.run_folder import open_run
from shardmill.training.run.checkpoints.checkpoints import Checkpoints
from shardmill.training.run.files.summary import summary
from shardmill.training.run.session import train
from shardmill.training.torch.export.program import load_program, open_predictor
from shardmill.training.train import train_dataset
from tests.samples.datasets.published import coloured, publish
from tests.samples.strict_json import strict_documents
from tests.samples.training.rounding import near
from tests.samples.training.torch_runs import Interrupting, assert_same_model, consumed, settings, weights


@pytest.fixture(scope="module")
def version(dataset: Dataset) -> DatasetVersion:
    return dataset.version


@pytest.fixture(scope="module")
def result(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An unbroken run of one process."""
    found = train_dataset("set", settings(), root=root, runs=tmp_path_factory.mktemp("runs"))
    assert found is not None
    return found


def planned(version: DatasetVersion, *overrides: str) -> list[tuple[int, int, list[str]]]:
    """The records that a run must consume, by the order alone."""
    config = settings(*overrides)
    table = Dataset(version).table("train")
    order = order_from_settings(config.data, table, version.manifest.classes)
    plans = [
        order.step(epoch, step) for epoch in range(config.run.epochs) for step in range(order.steps_per_epoch)
    ]
    return [(plan.epoch, plan.step, table.ids(plan.ordinals[plan.weights > 0])) for plan in plans]


def test_a_run_leaves_its_folder_and_no_tensorflow(result: dict[str, Any], version: DatasetVersion) -> None:
    run_dir = Path(result["run_dir"])
    assert "tensorflow" not in sys.modules
    assert "keras" not in sys.modules
    assert (result["framework"], result["epochs"], result["steps"]) == ("torch", 2, 12)
    assert consumed(run_dir) == planned(version)
    for name in ("result.json", "environment.json", "metrics.jsonl", "metrics.parquet", "report.html"):
        assert (run_dir / name).stat().st_size
    assert json.loads((run_dir / "environment.json").read_bytes())["packages"]["torch"]
    assert result["metrics"]["test"]["num_examples"] == 8
    assert "trained tests.samples.models.torch_model on set@1 for 2 epochs" in summary(result)
    assert json.loads((run_dir / "export" / "classes.json").read_bytes()) == ["a", "b", "c"]
    assert strict_documents(run_dir).keys() == {".json", ".jsonl", ".npz", ".parquet"}
    compared = result["exports"]["torch"]
    assert (compared["split"], compared["num_examples"], compared["agreement"]) == ("test", 8, 1.0)


def test_curves_are_event_files_of_tensorboard(result: dict[str, Any]) -> None:
    from tensorboard.compat.proto.event_pb2 import Event

    (path,) = Path(result["tensorboard_dir"], "train").iterdir()
    data, events = path.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little") + 16
        events.append(Event.FromString(unframe(data[:length])))
        data = data[length:]
    assert events[0].file_version == "brain.Event:2"
    losses = {event.step: point.simple_value for event in events for point in event.summary.value
              if point.tag == "loss"}  # fmt: skip
    assert losses == {6: pytest.approx(result["history"][0]["train"]["loss"]),
                      12: pytest.approx(result["history"][1]["train"]["loss"])}  # fmt: skip


def test_pictures_show_augmented_and_hardest_examples(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    counts = {"train": {"a": 24, "b": 20}, "validation": {"a": 6, "b": 5}}
    version = publish(tmp_path / "sets", coloured(counts, size=(20, 20)), name="set")
    train(settings("augment.mixup=0.2", "augment.randaugment.num_ops=1"), version, tmp_path / "with")
    for split, name in (("train", "examples"), ("validation", "hardest")):
        events = EventAccumulator(str(tmp_path / "with" / "logs" / split))
        events.Reload()
        first = events.Tensors(name)[0]
        width, height, content = first.tensor_proto.string_val
        decoded = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
        assert decoded.shape == (int(height), int(width), 3)
        assert decoded.std() > 10
        assert first.step == (0 if split == "train" else 5)
    train(settings("run.log_pictures=false"), version, tmp_path / "without")
    events = EventAccumulator(str(tmp_path / "without" / "logs" / "train"))
    events.Reload()
    assert "examples" not in events.Tags()["tensors"]


def test_steps_are_profiled_and_the_train_split_evaluated_on_request(
    version: DatasetVersion, tmp_path: Path
) -> None:
    asked = settings("run.epochs=1", "run.profile_steps=[2, 3]", "run.evaluate_train=true")
    result = train(asked, version, tmp_path)
    (path,) = (tmp_path / "logs" / "profile").glob("*.pt.trace.json")
    names = {event.get("name") for event in json.loads(path.read_bytes())["traceEvents"]}
    assert {"aten::convolution", "aten::linear"} <= names
    assert list(result["metrics"]) == ["test", "train"]
    assert result["metrics"]["train"]["num_examples"] == len(Dataset(version).table("train"))


def test_onnx_predicts_as_the_model_does(version: DatasetVersion, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    exports = train(settings("run.epochs=1", 'export.formats=["onnx"]'), version, tmp_path)["exports"]
    figures = exports["onnx"]
    assert (figures["split"], figures["num_examples"], figures["agreement"]) == ("test", 8, 1.0)
    assert figures["max_difference"] < 1e-5
    assert Path(figures["path"]).stat().st_size == figures["size_bytes"]
    session = onnxruntime.InferenceSession(figures["path"], providers=["CPUExecutionProvider"])
    images = np.random.default_rng(1).integers(0, 256, (5, 16, 16, 3), np.uint8)
    (found,) = session.run(["probabilities"], {"images": images})
    expected = load_program(tmp_path / "export")(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous())
    assert found == pytest.approx(expected.detach().numpy(), abs=1e-5)


def test_a_missing_converter_is_noticed_before_training(
    version: DatasetVersion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardmill.training.config.export.find_spec", lambda name: None)
    with pytest.raises(EnvironmentFault, match="needs the package onnx"):
        train(settings('export.formats=["onnx"]'), version, tmp_path)
    assert not (tmp_path / "checkpoints").exists()


def test_a_finished_run_is_evaluated_again_and_predicts(
    result: dict[str, Any], root: Path, tmp_path: Path
) -> None:
    run = open_run(result["run_dir"], tmp_path)
    again = evaluate_run(run, root, "test")["metrics"]
    assert again["confusion_matrix"] == result["metrics"]["test"]["confusion_matrix"]
    assert again["loss"] == near(result["metrics"]["test"]["loss"])
    picture = tmp_path / "one.png"
    cv2.imwrite(str(picture), np.full((30, 40, 3), 90, np.uint8))
    counts = predict(run, [picture], tmp_path / "found.json", "json")
    assert counts["predicted"] == 1
    (row,) = map(json.loads, (tmp_path / "found.json").read_text().splitlines())
    # What a server of one's own does: the file beside the export says which pixels the program takes.
    seen = read_model_input(run.path / "export").see(picture.read_bytes())
    (probabilities,) = open_predictor(run.path / "export", ["p"])(seen.pixels[np.newaxis]).values()
    assert list(row["probabilities"].values()) == pytest.approx(probabilities[0], abs=1e-6)


def test_an_interrupted_run_ends_in_the_same_weights(
    result: dict[str, Any], version: DatasetVersion, tmp_path: Path
) -> None:
    for step in (4, 9):
        with pytest.raises(Cancelled):
            train(settings(), version, tmp_path, None, Interrupting(step))  # type: ignore[arg-type]
    resumed = train(settings(), version, tmp_path)
    assert consumed(tmp_path) == planned(version)
    assert_same_model(tmp_path, Path(result["run_dir"]))
    losses = [row["train"]["loss"] for row in resumed["history"]]
    assert losses == near([row["train"]["loss"] for row in result["history"]])


def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    result: dict[str, Any], version: DatasetVersion, tmp_path: Path
) -> None:
    with pytest.raises(Cancelled):
        train(settings(), version, tmp_path, None, Interrupting(5))  # type: ignore[arg-type]
    newest = sorted((tmp_path / "checkpoints").glob("step-*.npz"))[-1]
    newest.write_bytes(newest.read_bytes()[:-200])
    train(settings(), version, tmp_path)
    assert consumed(tmp_path) == planned(version)
    assert_same_model(tmp_path, Path(result["run_dir"]))


def test_a_gradient_that_is_not_a_number_ends_the_run_before_it_is_kept(
    version: DatasetVersion, tmp_path: Path
) -> None:
    """The loss of the step is finite, and it is the last of its epoch: its model would be validated."""
    spoiled = settings("model.name=tests.samples.models.nan_gradient_torch_model", "run.epochs=3")
    for _ in range(2):  # the same command again meets the same step
        with pytest.raises(
            Diverged, match="gradient became nan, while the loss was finite, at step 6, epoch 2"
        ):
            train(spoiled, version, tmp_path)
        for path in (tmp_path / "checkpoints").glob("*.npz"):
            with np.load(path) as archive:
                assert all(np.isfinite(archive[name]).all() for name in archive.files)
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("step-*")) == [
        "step-000000010.npz", "step-000000011.npz",
    ]  # fmt: skip


EVERYTHING = (
    "optimizer.name=sgd", "optimizer.ema_decay=0.9", "optimizer.clip_norm=0.5", "model.dropout=0.5",
    "optimizer.first_layer_factor=0.3", "run.mixed_precision=bfloat16", "optimizer.label_smoothing=0.1",
    "data.class_weights=balanced", "optimizer.schedule=one-cycle", "augment.mixup=0.2", "augment.cutmix=1",
    "augment.randaugment.num_ops=1",
)  # fmt: skip


def test_averages_momentum_and_dropout_resume_too(version: DatasetVersion, tmp_path: Path) -> None:
    config = settings(*EVERYTHING)
    train(config, version, tmp_path / "whole")
    with pytest.raises(Cancelled):
        train(config, version, tmp_path / "broken", None, Interrupting(5))  # type: ignore[arg-type]
    train(config, version, tmp_path / "broken")
    left, right = weights(tmp_path / "whole"), weights(tmp_path / "broken")
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_the_parts_of_a_step_add_up(result: dict[str, Any], version: DatasetVersion, tmp_path: Path) -> None:
    train(settings("run.accumulate_steps=3"), version, tmp_path)
    assert_same_model(tmp_path, Path(result["run_dir"]))


def test_mixed_examples_may_be_taken_in_parts(version: DatasetVersion, tmp_path: Path) -> None:
    mixing = ("augment.mixup=0.2", "augment.cutmix=1", "run.epochs=1")
    train(settings(*mixing), version, tmp_path / "whole")
    train(settings(*mixing, "run.accumulate_steps=3"), version, tmp_path / "parts")
    assert_same_model(tmp_path / "parts", tmp_path / "whole")
    with pytest.raises(ConfigError, match="a device takes 9 of each batch"):
        train(settings(*mixing, "data.global_batch_size=9"), version, tmp_path / "odd")


def test_a_model_of_torchvision_trains_and_is_exported(root: Path, tmp_path: Path) -> None:
    changes = (
        "model.name=shufflenet_v2_x0_5",
        "data.image_size=32",
        "data.global_batch_size=27",
        "run.epochs=1",
    )
    result = train_dataset("set", settings(*changes, "model.dropout=0.5"), root=root, runs=tmp_path)
    assert result is not None
    assert (result["model"], result["steps"]) == ("shufflenet_v2_x0_5", 2)
    assert any(note.startswith("batch normalisation: the momentum of") for note in result["notes"])
    assert result["exports"]["torch"]["agreement"] == 1.0
    assert weights(Path(result["run_dir"]))["backbone.fc.weight"].shape == (3, 1024)


def test_a_run_leaves_out_a_fold(root: Path, tmp_path: Path) -> None:
    changes = settings("data.folds=3", "data.left_out_fold=1", "run.epochs=1")
    result = train_dataset("set", changes, root=root, runs=tmp_path)
    assert result is not None
    seen = {name for _, _, ids in consumed(Path(result["run_dir"])) for name in ids}
    assert len(seen) + result["left_out"]["metrics"]["num_examples"] == 53
    assert "fold 1 of 3 of the train split was left out" in result["notes"]


def test_more_epochs_continue_a_finished_run(root: Path, tmp_path: Path) -> None:
    constant = "optimizer.schedule=constant"
    first = train_dataset("set", settings(constant, "run.epochs=1"), root=root, runs=tmp_path)
    longer = train_dataset("set", settings(constant), root=root, runs=tmp_path)
    assert first is not None
    assert longer is not None
    assert longer["run_dir"] == first["run_dir"]
    assert (first["steps"], longer["steps"], len(longer["history"])) == (6, 12, 2)
    assert len(consumed(Path(longer["run_dir"]))) == 12


def test_the_best_model_stays_beside_the_last_checkpoints(result: dict[str, Any]) -> None:
    names = sorted(path.name for path in Path(result["run_dir"], "checkpoints").iterdir())
    # The last but one names the best of its time.
    assert names == ["best-000001.npz", "best-000002.npz", "step-000000011.npz", "step-000000012.npz"]
    folder = Storage.at(Path(result["run_dir"], "checkpoints"))
    assert Checkpoints(folder, 2).restore_best(2, []).epoch == 2


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("run.mixed_precision=float16",), "float16' needs a GPU"),
        (("run.devices=4",), "PyTorch sees no GPU"),
        (("ranks.collectives=nccl",), "needs NVIDIA GPUs"),
        (("run.accumulate_steps=11",), "has too few rows for 1 device in 11 parts"),
        (("model.weights=/no/such.pt",), "no such file"),
        (("model.name=vgg11", "data.image_size=8"), "vgg11 does not accept images"),
        (("model.name=vit_b_16", "data.image_size=24"), "vit_b_16 cannot be built for images of 24 pixels"),
        (('model.freeze=["head"]', "model.weights=x.pt"), "no such file"),
        (("optimizer.name=sgd", "optimizer.options={momentum = -1}"), "torch.optim.SGD refuses them"),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="what only a machine without a GPU refuses")
def test_what_cannot_be_done_here_is_refused(
    overrides: tuple[str, ...], message: str, version: DatasetVersion, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        train(settings(*overrides), version, tmp_path)
