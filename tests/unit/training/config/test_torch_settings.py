"""Settings that a training with PyTorch takes, and the refusal of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmill.infra.errors import ConfigError
from shardmill.infra.settings import load_settings
from shardmill.training.config import TrainConfig
from shardmill.training.config.optimizer_names import OPTIMIZERS
from shardmill.training.config.torch_settings import TORCH_OPTIMIZERS
from shardmill.training.run.files.identity import run_identity, run_name
from tests.samples.datasets.published import coloured, publish


def config(*overrides: str) -> TrainConfig:
    return load_settings(TrainConfig, section="train", overrides=overrides)


@pytest.mark.parametrize(
    ("override", "remedy"),
    [
        ("model.name=compact_resnet", "a model of torchvision"),
        ("model.name=EfficientNetV2B0", "a model of torchvision"),
        ("model.weights=imagenet", "the path of a .pt file"),
        ("optimizer.name=lion", "choose one of: adadelta, adagrad, adam,"),
        ("optimizer.options={amsgrad = true}", None),
        ("run.jit_compile=true", "leave run.jit_compile out"),
        ('run.callbacks=["module:make"]', "leave run.callbacks out"),
        ('export.formats=["litert"]', "leave export.formats out"),
        ('export.formats=["onnx"]', None),
        ("reading.decoder=tensorflow", "leave reading.decoder out"),
        ("reading.decoder=turbo", None),
        ("reading.mode=streaming", "leave reading.mode out"),
        ("augment.mixup=0.2", None),
        ("augment.randaugment.num_ops=2", None),
        ("ranks.shares=measured", None),
        ("ranks.shares=[2, 1]", None),
        ("run.gpu_memory_limit_bytes=1000000000", None),
        ("run.profile_steps=[1, 2]", None),
        ("run.rematerialize=true", None),
        ("run.log_pictures=false", None),
        ("model.name=resnet18", None),
        ("model.name=ResNet50", None),
        ("model.name=tests.samples.models.linear_model", None),
        ("optimizer.first_layer_factor=0.5", None),
    ],
)
def test_a_setting_without_a_meaning_is_refused_in_words(override: str, remedy: str | None) -> None:
    if remedy is None:
        assert config("run.framework=torch", override).run.framework == "torch"
        return
    with pytest.raises(ConfigError, match=r"does not work with run\.framework = 'torch'") as caught:
        config("run.framework=torch", override)
    assert str(caught.value).startswith(override.partition("=")[0])
    assert remedy in str(caught.value.remedy)


def test_a_model_of_torchvision_needs_torch() -> None:
    with pytest.raises(ConfigError, match="a model of torchvision") as caught:
        config("model.name=resnet18")
    assert "run.framework to torch" in str(caught.value.remedy)


def test_every_optimizer_has_options_that_the_settings_know() -> None:
    for name, optimizer in TORCH_OPTIMIZERS.items():
        assert set(optimizer.options) <= set(OPTIMIZERS[name].options)
        assert set(OPTIMIZERS[name].preset) <= set(optimizer.options)


def test_the_framework_names_a_run_only_if_it_is_not_tensorflow(tmp_path: Path) -> None:
    version = publish(tmp_path, coloured({"train": {"a": 2, "b": 2}}), name="set")
    assert "framework" not in run_identity(config(), version)["config"]["run"]
    torch = config("run.framework=torch")
    assert run_identity(torch, version)["config"]["run"]["framework"] == "torch"
    assert run_name(torch, version) != run_name(config(), version)
    assert run_name(config("run.framework=tensorflow"), version) == run_name(config(), version)
