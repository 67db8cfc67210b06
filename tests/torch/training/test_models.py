"""Models of PyTorch by name: the table of torchvision, weights, freezing, batch normalisation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from torch import nn

from shardmill.infra.errors import ConfigError
from shardmill.training.models import ModelSpec, PixelStatistics
from shardmill.training.models.names import TORCHVISION, find_torchvision
from shardmill.training.torch.models import Normalization, build_model, load_weights
from shardmill.training.torch.models.layers import freeze_modules, set_training, weighted_modules
from shardmill.training.torch.models.normalization import limit_momentum


def spec(name: str, **given: Any) -> ModelSpec:
    return ModelSpec(**{"name": name, "num_classes": 3, "image_size": 32, **given})


def test_the_table_is_that_of_torchvision() -> None:
    assert sorted(TORCHVISION) == torchvision.models.list_models(module=torchvision.models)
    for name, size in TORCHVISION.items():
        weights = torchvision.models.get_model_weights(name)
        sizes = [entry.transforms.keywords["crop_size"] for entry in weights]
        assert size in sizes, name


@pytest.mark.parametrize("spelling", ["resnet18", "ResNet18", "mobilenet-v3-small", "MobileNetV3Small"])
def test_models_are_found_in_any_spelling(spelling: str) -> None:
    assert find_torchvision(spelling) in ("resnet18", "mobilenet_v3_small")


@pytest.mark.parametrize("name", ["small_cnn", "squeezenet1_1", "mobilenet_v3_small", "shufflenet_v2_x0_5"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_model_takes_pixels_and_gives_logits(name: str, channels: int) -> None:
    model = build_model(spec(name, image_channels=channels, dropout=0.3)).eval()
    images = torch.full((2, channels, 32, 32), 255.0)
    assert model(images).shape == (2, 3)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_features_are_dropped_before_the_classifier_in_training_only(name: str) -> None:
    model = build_model(spec(name, dropout=0.9))
    images = torch.rand(4, 3, 32, 32) * 255
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    assert torch.equal(model.eval()(images), model(images))
    model.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    assert not torch.equal(model(images), model(images))
    plain = torchvision.models.get_model(name, num_classes=3)
    assert list(model.backbone.state_dict()) == list(plain.state_dict())


def test_weights_of_torchvision_load_but_for_a_classifier_of_other_classes(tmp_path: Path) -> None:
    other = torchvision.models.resnet18(num_classes=7)
    torch.save(other.state_dict(), tmp_path / "resnet18.pt")
    model = build_model(spec("resnet18"))
    told = load_weights(model, str(tmp_path / "resnet18.pt"))
    assert str(told).startswith("weights: 40 of 41 layers come from ")
    assert list(told.missing) == ["fc"]
    assert torch.equal(model.backbone.conv1.weight, other.conv1.weight)
    assert model.backbone.fc.weight.shape == (3, 512)
    (tmp_path / "bad.pt").write_bytes(b"no weights")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        load_weights(model, str(tmp_path / "bad.pt"))
    torch.save({"x": torch.zeros(1)}, tmp_path / "strange.pt")
    with pytest.raises(ConfigError, match="no weight in it"):
        load_weights(model, str(tmp_path / "strange.pt"))


def test_fewer_weights_than_all_but_the_classifier_are_refused_unless_asked_for(tmp_path: Path) -> None:
    path = str(tmp_path / "resnet34.pt")
    torch.save(torchvision.models.resnet34(num_classes=3).state_dict(), path)
    torch.save(torchvision.models.resnet18(num_classes=3).state_dict(), path.replace("34", "18"))
    load_weights(build_model(spec("resnet18")), path, partial=True)
    with pytest.raises(ConfigError, match=r"\d+ of 73 layers of the model are not in it.*layer1.2.conv1"):
        load_weights(build_model(spec("resnet34")), path.replace("34", "18"))
    model = build_model(spec("resnet34"))
    own = model.backbone.layer1[2].conv1.weight.clone()
    taken = load_weights(model, path.replace("34", "18"), partial=True)
    assert "layer1.2.conv1" in taken.missing
    assert torch.equal(model.backbone.layer1[2].conv1.weight, own)
    with pytest.raises(ConfigError, match="would keep random weights"):
        taken.check_frozen(["layer1.2.conv1"])


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    other = torchvision.models.resnet18(num_classes=3)
    other.conv1.weight.data[0, 0, 0, 0] = torch.nan
    torch.save(other.state_dict(), tmp_path / "bad.pt")
    with pytest.raises(ConfigError, match=r"conv1\.weight has numbers that are not finite"):
        load_weights(build_model(spec("resnet18")), str(tmp_path / "bad.pt"))


def test_a_frozen_backbone_keeps_its_weights_and_statistics() -> None:
    model = build_model(spec("small_cnn"))
    frozen = freeze_modules(model, "backbone")
    assert frozen is not None
    assert frozen.num_layers == len(weighted_modules(model)) - 1
    set_training(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model(torch.rand(4, 3, 32, 32) * 255).sum().backward()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert [name for name, own in model.named_parameters() if own.grad is not None] == [
        "18.weight",
        "18.bias",
    ]
    assert freeze_modules(build_model(spec("small_cnn")), 2).num_layers == 2  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="has no module 'head'"):
        freeze_modules(build_model(spec("small_cnn")), ["head"])
    with pytest.raises(ConfigError, match="leaves nothing of the model to train"):
        freeze_modules(build_model(spec("small_cnn")), ["*"])


def test_normalisation_is_that_of_the_train_split() -> None:
    pixels = PixelStatistics((10.0, 20.0, 30.0), (2.0, 4.0, 0.0))
    layer = Normalization.of(spec("small_cnn", pixels=pixels))
    image = torch.tensor([12.0, 24.0, 31.0]).view(1, 3, 1, 1)
    assert layer(image).flatten().tolist() == [1.0, 1.0, 1.0]
    white = Normalization.of(spec("small_cnn"))(torch.full((1, 3, 1, 1), 255.0))
    assert white.flatten().tolist() == [1.0, 1.0, 1.0]
    assert not layer.state_dict()


def test_slow_moving_statistics_follow_short_runs() -> None:
    model = build_model(spec("mobilenet_v3_small"))
    limited = limit_momentum(model, 0.9)
    assert limited is not None
    assert (limited.highest, limited.limit) == (0.99, 0.9)
    momenta = {module.momentum for module in model.modules() if isinstance(module, nn.BatchNorm2d)}
    assert list(momenta) == [pytest.approx(0.1)]
    assert limit_momentum(build_model(spec("small_cnn")), 0.9) is None
