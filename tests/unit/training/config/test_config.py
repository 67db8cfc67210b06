"""The configuration: what it refuses and what names a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shardmill.infra.errors import ConfigError
from shardmill.infra.settings import load_settings
from shardmill.training.config import AugmentSettings, TrainConfig
from shardmill.training.models import known_models, resolve_name
from shardmill.training.run.files.identity import run_name
from tests.samples.datasets.published import coloured, publish


def config(*overrides: str) -> TrainConfig:
    return load_settings(TrainConfig, section="train", overrides=overrides)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.name=ResNet5", "did you mean 'ResNet50'"),
        ("model.name=smal_cnn", "did you mean 'small_cnn'"),
        ("model.name=my_models", "a model of your own is named as in my_models:build"),
        ("model.name=.small_cnn", "is no name of code"),
        ("model.name=training..models", "is no name of code"),
        ("model.name=my_models:", "is no name of code"),
        ("data.image_sise=64", "data.image_size"),
        ("data.balance=even", "natural"),
        ("data.global_batch_size=0", "a number from 1 to 16777216"),
        ("augment.scale=[0.9, 0.1]", "two numbers above 0 and at most 1, smaller first"),
        ("augment.ratio=[0, 1]", "two positive numbers, smaller first"),
        ("run.epochs=0", "greater than or equal to 1"),
        ("optimizer.name=adamz", "did you mean 'adam'"),
        ("ranks.shares=fast", "ranks.shares"),
        ("ranks.shares=[3, 0]", "greater than or equal to 1"),
    ],
)
def test_wrong_settings_are_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(override)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("resnet50", "ResNet50"),
        ("efficientnet_b0", "EfficientNetB0"),
        ("SmallCNN", "small_cnn"),
        ("tests.samples.models.linear_model", "tests.samples.models.linear_model"),
    ],
)
def test_models_are_found_in_any_spelling(spelling: str, name: str) -> None:
    assert resolve_name(spelling) == name


@pytest.mark.parametrize("workers", ["3", "2..3", "1"])
def test_shares_are_of_as_many_ranks_as_are_started(workers: str) -> None:
    assert config("ranks.shares=[3, 1]", "ranks.workers=2").ranks.shares == [3, 1]
    with pytest.raises(ConfigError, match=f"has 2 shares for ranks.workers = {workers}"):
        config("ranks.shares=[3, 1]", f"ranks.workers={workers}")


def test_a_run_is_named_by_what_decides_its_outcome(tmp_path: Path) -> None:
    version = publish(tmp_path, coloured({"train": {"a": 2, "b": 2}}), name="set")
    name = run_name(config(), version)
    assert name.startswith("set-v1-")
    assert run_name(config("run.devices=one", "run.fresh=true", "run.keep_checkpoints=9"), version) == name
    assert run_name(config("run.epochs=3"), version) != name
    assert run_name(config("data.seed=1"), version) != name


def test_runs_of_earlier_releases_keep_their_names(tmp_path: Path) -> None:
    version = publish(tmp_path, coloured({"train": {"a": 2, "b": 2}}), name="set")
    assert run_name(config(), version) == "set-v1-94ebbd498c"
    assert run_name(config("run.framework=torch"), version) == "set-v1-611f06bf46"


def test_a_later_setting_names_no_run_at_its_default(tmp_path: Path) -> None:
    class LaterAugmentSettings(AugmentSettings):
        solarize: float = 0.0

    class LaterConfig(TrainConfig):
        augment: LaterAugmentSettings = LaterAugmentSettings()

    version = publish(tmp_path, coloured({"train": {"a": 2, "b": 2}}), name="set")
    assert run_name(LaterConfig(), version) == run_name(TrainConfig(), version)
    assert run_name(LaterConfig(augment={"solarize": 0.5}), version) != run_name(TrainConfig(), version)


def test_the_configuration_loads_no_tensorflow() -> None:
    code = "import sys; from shardmill.training import config, dataset, order, train; "
    code += "sys.exit('tensorflow' in sys.modules or 'keras' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_table_of_applications_is_that_of_keras() -> None:
    keras = pytest.importorskip("keras")
    offered = {
        name for name, value in vars(keras.applications).items() if callable(value) and name[0].isupper()
    }
    assert set(known_models()) - {"compact_resnet", "small_cnn", "small_unet"} == offered
