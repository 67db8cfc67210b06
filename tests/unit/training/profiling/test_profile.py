"""``python -m shardmill.training.profile`` measures every stage, names a bottleneck and draws a picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from shardmill import open_dataset
from shardmill.infra.errors import NotFoundError
from shardmill.infra.processes.children import run_child
from shardmill.training import profile
from shardmill.training.config import AugmentSettings, TrainConfig
from shardmill.training.frameworks import start
from shardmill.training.order import TrainingOrder
from shardmill.training.profiling.stages import Subject, measure_stages
from shardmill.training.reading.example_spec import ExampleSpec
from tests.samples.datasets.published import coloured, publish
from tests.samples.images.drawn_objects import draw_objects, objects_config
from tests.samples.images.masks import config as masks_config
from tests.samples.images.masks import make_masked
from tests.samples.preparing.prepared import run as prepare

COUNTS = {"train": 12, "validation": 4, "test": 4}
COMMON = ["plan", "read (first time)", "read", "decode", "resize", "augment"]


@pytest.mark.parametrize("container", ["gzip", "none"])
def test_each_stage_is_measured(tmp_path: Path, container: str) -> None:
    publish(tmp_path, coloured({"train": {"a": 9, "b": 9}}), name="set", container=container)  # type: ignore[arg-type]
    records = open_dataset("set", root=tmp_path).reader("train")
    order = TrainingOrder(records.table.label, seed=0, global_batch_size=6)
    asked = []
    subject = Subject(records, order, ExampleSpec(image_size=24, augment=AugmentSettings()), 0.02)
    stages = measure_stages(subject, asked.append)
    inflates = container == "gzip"
    assert [stage.name for stage in stages if stage.name != "inflate"] == COMMON
    assert ("inflate" in [stage.name for stage in stages]) == inflates
    assert all(stage.microseconds >= 0 for stage in stages)
    assert {"inflate", *COMMON} == set(asked)
    decode = next(stage for stage in stages if stage.name == "decode")
    assert decode.images_per_second(4) == pytest.approx(4e6 / decode.microseconds)


def test_the_command_measures_training_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(tmp_path / "datasets", coloured({"train": {"a": 12, "b": 12}}, size=(40, 40)), name="set")
    picture = tmp_path / "profile.svg"
    settings = {"data": {"image_size": 32, "global_batch_size": 8}}
    words = ["set", "--root", str(tmp_path / "datasets"), "--seconds", "0.05", "--json", "--model"]
    words += ["--picture", str(picture), "--config-json", json.dumps(settings)]
    assert profile.main(words) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [stage["name"] for stage in result["stages"]][-1] in (
        "augment",
        "transfer",
    )  # where there is a GPU
    assert set(result["rates"]) == {"batches", "pipeline", "model", "training"}
    assert all(rate > 0 for rate in result["rates"].values())
    assert result["bottleneck"]["remedy"]
    drawn = {element.text for element in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")}
    assert {"decode", "training"} <= drawn


def test_what_no_model_can_learn_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(tmp_path, coloured({"train": {"a": 4}}), classes=[], name="none")
    assert profile.main(["none", "--root", str(tmp_path), "--seconds", "0.01"]) == 2
    said = capsys.readouterr()
    assert "none@1 has no labels: there is nothing that a model could learn from it" in said.err
    assert "measuring" not in said.out + said.err


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["objects", "masks"])
def test_training_on_places_is_measured(tmp_path: Path, kind: str) -> None:
    root, settings = tmp_path / "datasets", {"data": {"image_size": 64, "global_batch_size": 4}}
    if kind == "objects":
        draw_objects(tmp_path / "source", COUNTS, seed=1)
        prepare(tmp_path / "source", root, **objects_config(COUNTS))
    else:
        prepare(make_masked(tmp_path / "source", 16), root, **masks_config())
        settings["model"] = {"name": "small_unet"}
    command = [
        sys.executable,
        "-m",
        "shardmill.training.profile",
        "d",
        "--root",
        str(root),
        "--seconds",
        "0.05",
    ]
    child = run_child([*command, "--model", "--config-json", json.dumps(settings)])
    child.raise_for_status()
    assert child.result is not None
    assert set(child.result["rates"]) == {"batches", "pipeline", "model", "training"}


def test_what_a_model_of_ones_own_prints_while_it_loads_is_held_back(tmp_path: Path) -> None:
    publish(tmp_path, coloured({"train": {"a": 9, "b": 9}}), name="set")
    source = "import os\nos.write(2, b'loading\\n')\nDEFAULT_IMAGE_SIZE = 24\n\ndef build(spec): ...\n"
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "talking.py").write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "shardmill.training.profile", "set", "--root", str(tmp_path)]
    settings = {"model": {"name": "models.talking"}, "data": {"global_batch_size": 6}}
    command += ["--seconds", "0.02", "--config-json", json.dumps(settings)]
    child = run_child(command, env={"PYTHONPATH": str(tmp_path)})
    child.raise_for_status()
    assert child.result is not None
    assert child.result["image_size"] == 24
    assert "loading" not in child.last_lines


def test_the_way_to_a_device_is_measured(tmp_path: Path) -> None:
    from shardmill.training.profiling.bottleneck import transfer

    publish(tmp_path, coloured({"train": {"a": 9, "b": 9}}), name="set")
    records = open_dataset("set", root=tmp_path).reader("train")
    order = TrainingOrder(records.table.label, seed=0, global_batch_size=6)
    stage = transfer(
        Subject(records, order, ExampleSpec(image_size=24), 0.02), start("tensorflow", TrainConfig())
    )
    assert stage.name == "transfer"
    assert stage.detail.startswith("to CPU, ")
    assert stage.microseconds > 0


def test_an_unknown_dataset_is_said_at_once() -> None:
    child = run_child([sys.executable, "-m", "shardmill.training.profile", "nothing"])
    with pytest.raises(NotFoundError, match="no dataset 'nothing'"):
        child.raise_for_status()
