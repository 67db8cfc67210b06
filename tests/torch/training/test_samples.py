"""Images of other depths and numbers of channels: mixed, normalised, learned, exported and predicted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from shardmill import open_dataset
from shardmill.infra.errors import ConfigError
from shardmill.training.augment.parameters import draw_batch_parameters
from shardmill.training.config import AugmentSettings
from shardmill.training.evaluate import evaluate_run
from shardmill.training.models import ModelSpec
from shardmill.training.models.spec import pixels_of
from shardmill.training.predict import predict
from shardmill.training.results.run_files.run_folder import open_run
from shardmill.training.torch.data import DeviceAugment
from shardmill.training.torch.models import build_model
from shardmill.training.torch.models.normalization import Normalization
from shardmill.training.train import train_dataset
from tests.samples.datasets.published import measured, publish
from tests.samples.training.torch_runs import MODEL, settings

COUNTS = {"train": {"a": 15, "b": 10}, "test": {"a": 4, "b": 3}}
KINDS = [("uint8", 4), ("uint16", 5), ("float32", 2)]


@pytest.mark.parametrize(("dtype", "channels"), KINDS)
def test_a_run_learns_is_exported_and_predicts(tmp_path: Path, dtype: str, channels: int) -> None:
    version = publish(tmp_path / "datasets", measured(dtype, channels, COUNTS), name="set")
    config = settings(
        "model.name=small_cnn", "run.epochs=3", "data.last_batch=pad", "run.accumulate_steps=5",
        "augment.cutmix=1.0", "augment.mixup=0.2", "augment.mix_probability=0.3",
        "augment.color_jitter.brightness=0.1", 'export.formats=["onnx"]', "optimizer.learning_rate=0.02",
    )  # fmt: skip
    result = train_dataset("set", config, root=tmp_path / "datasets", runs=tmp_path / "runs")
    assert result is not None
    assert result["metrics"]["test"]["accuracy"] == 1.0
    assert (result["exports"]["onnx"]["agreement"], result["exports"]["torch"]["agreement"]) == (1.0, 1.0)
    assert result["exports"]["onnx"]["max_difference"] < 1e-5
    run = open_run(result["run_dir"], tmp_path)
    again = evaluate_run(run, tmp_path / "datasets", "test")["metrics"]
    assert again["confusion_matrix"] == result["metrics"]["test"]["confusion_matrix"]
    files = []
    for number, one in enumerate(measured(dtype, channels, {"train": {"a": 2, "b": 2}})):
        files.append(tmp_path / f"{number}.npy")
        np.save(files[-1], np.nan_to_num(one.pixels, posinf=0))
    predict(run, files, tmp_path / "found.json", "json")
    rows = [json.loads(line) for line in (tmp_path / "found.json").read_text().splitlines()]
    assert [row.get("predicted") for row in rows] == ["a", "a", "b", "b"], rows
    assert version.manifest.samples.channels == channels


@pytest.mark.parametrize(("dtype", "channels"), KINDS)
def test_pixels_are_normalised_by_the_statistics_of_the_split(
    tmp_path: Path, dtype: str, channels: int
) -> None:
    version = publish(tmp_path, measured(dtype, channels, COUNTS), name="set")
    statistics = pixels_of(version.manifest, channels)
    spec = ModelSpec("small_cnn", 2, 16, image_channels=channels, dtype=dtype, pixels=statistics)  # type: ignore[arg-type]
    pixels = np.stack([one.pixels for one in measured(dtype, channels, COUNTS) if one.split == "train"])
    found = Normalization.of(spec)(torch.from_numpy(pixels).permute(0, 3, 1, 2).float())
    values = pixels.astype(np.float64)
    values[~np.isfinite(values)] = np.nan
    mean, std = (measure(values, (0, 1, 2)) for measure in (np.nanmean, np.nanstd))
    wanted = np.nan_to_num((values - mean) / std, nan=0.0)
    np.testing.assert_allclose(found.permute(0, 2, 3, 1).numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_mixed_images_are_those_of_float64(tmp_path: Path, dtype: str) -> None:
    publish(tmp_path, measured(dtype, 3, {"train": {"a": 5, "b": 3}}), name="set")
    (batch,) = open_dataset("set", root=tmp_path).torch("train", batch_size=8, image_size=16)
    settings = AugmentSettings(mixup=1.0, mix_probability=0.7)
    before = batch.images.clone()
    found = DeviceAugment(settings, 0)(batch).images
    assert torch.equal(batch.images.nan_to_num(), before.nan_to_num()), "the batch itself was changed"
    assert found.dtype == getattr(torch, dtype)
    drawn = draw_batch_parameters(settings, 0, 0, batch.positions.numpy(), 16)
    own = drawn["Mixing"]["blend"][:, None, None, None].astype(np.float64)
    given = batch.images.numpy().astype(np.float64)
    with np.errstate(invalid="ignore"):
        wanted = own * given + (1 - own) * given[[1, 0, 3, 2, 5, 4, 7, 6]]
    wanted = np.where(own == 1, given, wanted)
    assert 0 < (own == 1).sum() < 8
    finite = np.isfinite(wanted)
    steps = 0.51 if dtype == "uint16" else 1e-5
    assert np.abs(found.numpy()[finite] - wanted[finite]).max() <= steps


def test_models_of_users_take_other_images_and_those_of_torchvision_refuse_them() -> None:
    model = build_model(ModelSpec(MODEL, 3, 16, image_channels=5, dtype="uint16"))
    assert model(torch.zeros(2, 5, 16, 16)).shape == (2, 3)
    with pytest.raises(
        ConfigError, match="'resnet18' takes grey or RGB of 8 bits, and the images are uint16"
    ):
        build_model(ModelSpec("resnet18", 3, 32, image_channels=5, dtype="uint16"))
