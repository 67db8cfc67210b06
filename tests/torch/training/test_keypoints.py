"""Key points with PyTorch: the model on its backbones, and a run from training to predicted files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from shardmill.infra.errors import ConfigError
from shardmill.training.config import TrainConfig
from shardmill.training.evaluate import evaluate_run
from shardmill.training.models.spec import ModelSpec
from shardmill.training.predict import predict
from shardmill.training.results.run_files.run_folder import open_run
from shardmill.training.tasks.keypoints import KeyPointsKind, KeyPointsTask
from shardmill.training.torch.models import build_model, load_weights
from shardmill.training.torch.models.layers import freeze_modules
from shardmill.training.torch.operations import OPERATIONS
from shardmill.training.train import train_dataset
from tests.samples.images.shape_pictures import HEIGHT, NAMES, WIDTH

SPEC = ModelSpec("small_cnn", 6, 64, output="points")
SETTINGS = {
    "data": {"image_size": 64, "global_batch_size": 8, "objects": "keypoints"},
    "run": {"epochs": 5, "framework": "torch", "log_pictures": False},
    "optimizer": {"learning_rate": 0.003},
    "augment": {"horizontal_flip": True},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tensorflow_python: str) -> Path:
    """A data set ``d`` with three points an image; Beam is in the other environment."""
    made = tmp_path_factory.mktemp("keypoints")
    draw = "import sys, pathlib; from tests.samples.images.shape_pictures import draw_shapes; "
    draw += "draw_shapes(*map(pathlib.Path, sys.argv[1:]), 60, bars=False, splits=(0.8, 0.0, 0.2))"
    command = [tensorflow_python, "-c", draw, str(made / "source"), str(made / "datasets")]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[3])
    return made


def test_a_run_finds_most_points_and_files_get_them_in_their_pixels(folder: Path, tmp_path: Path) -> None:
    """1.0 was seen after five epochs without mirrors."""
    config = TrainConfig.model_validate(SETTINGS)
    result = train_dataset("d", config, root=folder / "datasets", runs=folder / "runs")
    assert result is not None
    test = result["metrics"]["test"]
    assert (result["task"], result["keypoints"]) == ("keypoints", list(NAMES))
    assert set(test) == {*KeyPointsKind().figures, "num_examples"}
    assert test["correct_keypoints"] > 0.6
    assert result["exports"]["torch"]["agreement"] == 1
    assert result["on_source_files"]["agreement"] == 1
    assert "White points" in Path(result["report"]).read_text()
    run = open_run(result["run_dir"], folder / "runs")
    again = evaluate_run(run, folder / "datasets", "test")["metrics"]
    assert again["loss"] == pytest.approx(test["loss"], rel=1e-5)
    rows = pq.read_table(result["predictions"]["test"])
    labels, found = KeyPointsKind().read([], rows)
    assert labels.shape == (12, 3 * len(NAMES) + 4)
    uris = rows["source_uri"].to_pylist()
    predict(run, [folder / "source" / uri for uri in uris], tmp_path / "found.json", "json")
    lines = [json.loads(line) for line in (tmp_path / "found.json").read_text().splitlines()]
    points = np.array([list(line["points"].values()) for line in lines])
    assert list(lines[0]["points"]) == [f"{name} {axis}" for name in NAMES for axis in ("y", "x")]
    np.testing.assert_allclose(points, found["points"] * ([HEIGHT, WIDTH] * len(NAMES)), atol=0.02)


def test_losses_and_scores_count_annotated_points_alone() -> None:
    chance = np.random.default_rng(0)
    outputs, points = chance.random((3, 8)).astype(np.float32), chance.random((3, 4, 3)).astype(np.float32)
    points[..., 2] = [[2, 1, 0, 2], [0, 0, 1, 0], [0, 0, 0, 0]]
    labels = np.concatenate([points.reshape(3, -1), np.tile([0, 0, 1, 1], (3, 1))], 1).astype(np.float32)
    task, given = KeyPointsTask(OPERATIONS, 4), torch.tensor(outputs, requires_grad=True)
    losses, scores = task.losses(given, torch.tensor(labels)), task.scores(given, torch.tensor(labels))
    apart = np.hypot(*np.moveaxis(outputs.reshape(3, 4, 2) - points[..., :2], -1, 0))
    for row, seen in enumerate(points[:2, :, 2] > 0):
        assert scores[row].item() == pytest.approx(apart[row][seen].mean(), rel=1e-5)
        assert losses[row].item() == pytest.approx(100 * np.square(apart[row][seen]).mean(), rel=1e-5)
    assert scores[2].item() == losses[2].item() == 0
    losses.sum().backward()
    slope = given.grad.reshape(3, 4, 2).abs().sum(-1) > 0
    assert slope.tolist() == (points[..., 2] > 0).tolist()


@pytest.mark.parametrize(("name", "size"), [("small_cnn", 64), ("resnet18", 96), ("mobilenet_v3_small", 64)])
def test_the_named_model_is_the_backbone(name: str, size: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    spec = ModelSpec(name, 6, size, output="points")
    model, images = build_model(spec), torch.rand(2, 3, size, size) * 255
    places = model.eval()(images)
    assert places.shape == (2, 6)
    assert ((places > 0.3) & (places < 0.7)).all(), "at the start all points are near the middle"
    model.train()(images).sum().backward()
    assert all(one.grad is not None for one in model.parameters()), "no layer is left over for nothing"
    classifier = build_model(ModelSpec(name, 4, size))
    torch.save(classifier.state_dict(), tmp_path / "classifier.pt")
    taken = load_weights(model.backbone, str(tmp_path / "classifier.pt"))
    assert not taken.missing
    torch.save(build_model(spec).state_dict(), tmp_path / "points.pt")
    assert not load_weights(model, str(tmp_path / "points.pt")).missing
    assert not load_weights(model, str(tmp_path / "classifier.pt")).missing
    freeze_modules(model, "backbone")
    assert not any(one.requires_grad for one in model.backbone.parameters())
    learning = {path.split(".")[0] for path, one in model.named_parameters() if one.requires_grad}
    assert {"lateral", "smooth", "heat_maps"} <= learning <= {"lateral", "coarser", "smooth", "heat_maps"}


def test_a_place_is_the_mean_of_the_cells_that_a_heat_map_weighs() -> None:
    torch.manual_seed(0)
    model = build_model(SPEC).eval()
    heat: list[Any] = []
    model.heat_maps.weight.data.mul_(100)
    model.heat_maps.register_forward_hook(lambda _module, _inputs, output: heat.append(output))
    found = model(torch.rand(2, 3, 64, 64) * 255).detach().numpy().reshape(2, 3, 2)
    maps = heat[0].detach().numpy().astype(np.float64)
    shares = np.exp(maps) / np.exp(maps).sum((2, 3), keepdims=True)
    middles = (np.arange(8) + 0.5) / 8
    np.testing.assert_allclose(found[..., 0], np.einsum("bkhw,h->bk", shares, middles), rtol=1e-4)
    np.testing.assert_allclose(found[..., 1], np.einsum("bkhw,w->bk", shares, middles), rtol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        halved = model(torch.rand(2, 3, 64, 64) * 255)
    assert halved.dtype == torch.float32


def test_backbones_that_find_no_places_are_refused() -> None:
    for name, size, words in (
        ("vit_b_16", 64, "vit_b_16 has no layer whose output has 1/8"),
        ("small_cnn", 72, "need a multiple of 32"),
    ):
        with pytest.raises(ConfigError, match=words):
            build_model(ModelSpec(name, 6, size, output="points"))


class Branching(nn.Module):  # type: ignore[misc]
    """Its forward depends on its values: nothing can follow it without them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3, 8, 1)

    def forward(self, images: Any) -> Any:
        found = self.layer(images).mean((2, 3))
        return found if found.sum() > 0 else -found


def test_a_model_with_conditions_on_its_values_is_refused() -> None:
    from shardmill.training.torch.models.point_finder import build

    with pytest.raises(ConfigError, match="small_cnn cannot be cut into a backbone"):
        build(SPEC, Branching())
