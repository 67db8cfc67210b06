"""Initial weights from files: which layers take them, and when a file is of another model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError
from shardmill.infra.settings import load_settings
from shardmill.training.config import TrainConfig
from shardmill.training.models import ModelSpec
from shardmill.training.tensorflow.models import build_model
from shardmill.training.tensorflow.models.weights import load_initial
from tests.samples.datasets.published import coloured, publish

keras = pytest.importorskip("keras")

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of Keras

SPEC = ModelSpec("small_cnn", 3, 32)


def saved(path: Path, name: str = "small_cnn", spoil: float | None = None, **changes: Any) -> str:
    """A file of the weights of a model; with ``spoil`` as its first number."""
    model = build_model(replace(SPEC, name=name, seed=5, **changes))
    if spoil is not None:
        value = model.weights[0].numpy()
        value.flat[0] = spoil
        model.weights[0].assign(value)
    (model.save if path.suffix == ".keras" else model.save_weights)(path)
    return str(path)


@pytest.mark.parametrize("suffix", ["weights.h5", "keras"])
def test_a_classifier_of_other_classes_keeps_its_own_head(tmp_path: Path, suffix: str) -> None:
    spec = replace(SPEC, num_classes=7, weights=saved(tmp_path / f"model.{suffix}"))
    model, fresh = build_model(spec), build_model(spec)
    head = [weight.numpy() for weight in model.weights[-2:]]
    taken = load_initial(model, spec)
    assert taken is not None
    assert (len(taken.taken), list(taken.missing)) == (8, ["logits"])
    assert str(taken).endswith("; random: logits")
    assert all(
        np.array_equal(weight.numpy(), own) for weight, own in zip(model.weights[-2:], head, strict=True)
    )
    assert not np.array_equal(model.weights[0].numpy(), fresh.weights[0].numpy())
    assert all(np.isfinite(weight.numpy()).all() for weight in model.weights)


@pytest.mark.parametrize("pair", [("compact_resnet", "small_cnn"), ("small_cnn", "compact_resnet")])
def test_weights_of_another_model_are_refused(tmp_path: Path, pair: tuple[str, str]) -> None:
    path = saved(tmp_path / "other.weights.h5", pair[0])
    spec = replace(SPEC, name=pair[1], weights=path)
    with pytest.raises(ConfigError, match=r"layers of the model are not in it") as refused:
        load_initial(build_model(spec), spec)
    assert path in refused.value.message
    assert "a model of the same layers" in str(refused.value.remedy)


def test_weights_of_a_part_are_taken_where_that_is_asked_for(tmp_path: Path) -> None:
    """A file of grey images: the first convolution has another shape."""
    spec = replace(SPEC, weights=saved(tmp_path / "grey.weights.h5", image_channels=1))
    model = build_model(spec)
    with pytest.raises(ConfigError, match="1 of 9 layers of the model are not in it") as refused:
        load_initial(model, spec)
    assert "model.partial_weights = true" in str(refused.value.remedy)
    spec = replace(spec, partial_weights=True)
    model = build_model(spec)
    first = model.weights[0].numpy()
    taken = load_initial(model, spec)
    assert taken is not None
    assert (len(taken.taken), len(taken.missing)) == (8, 1)
    assert np.array_equal(model.weights[0].numpy(), first)


def test_a_file_of_a_larger_model_is_refused_though_all_layers_fit(tmp_path: Path) -> None:
    """Keras goes by kind and place, so that the first layers of the larger model would be taken."""

    def stack(depth: int) -> Any:
        inputs = x = keras.Input((4,))
        for _ in range(depth):
            x = keras.layers.Dense(4)(x)
        return keras.Model(inputs, x)

    path = str(tmp_path / "deep.weights.h5")
    stack(5).save_weights(path)
    with pytest.raises(ConfigError, match="a larger model: it has 4 arrays more"):
        load_initial(stack(3), replace(SPEC, weights=path))
    assert load_initial(stack(5), replace(SPEC, weights=path)) is not None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    spec = replace(SPEC, weights=saved(tmp_path / "bad.weights.h5", spoil=value))
    with pytest.raises(ConfigError, match="kernel has numbers that are not finite"):
        load_initial(build_model(spec), spec)


@pytest.mark.parametrize("content", [None, b"", b"no weights"])
@pytest.mark.parametrize("suffix", ["weights.h5", "keras", "h5", "pt"])
def test_files_that_cannot_be_read_are_named(tmp_path: Path, suffix: str, content: bytes | None) -> None:
    path = tmp_path / f"odd.{suffix}"
    if content is not None:
        path.write_bytes(content)
    spec = replace(SPEC, weights=str(path))
    with pytest.raises(ConfigError, match=r"odd\." + suffix):
        load_initial(build_model(spec), spec)


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> DatasetVersion:
    return publish(tmp_path_factory.mktemp("sets"), coloured({"train": {"a": 4, "b": 4}}), name="set")


def test_a_run_says_which_layers_took_weights_and_freezes_no_others(
    version: DatasetVersion, tmp_path: Path
) -> None:
    from shardmill.training.tensorflow.parts import build_parts
    from shardmill.training.tensorflow.ranks.strategy import make_strategy

    def parts(*changes: str) -> Any:
        asked = [f"model.weights={tmp_path}/{changes[0]}.weights.h5", "data.image_size=32", *changes[1:]]
        config = load_settings(TrainConfig, section="train", overrides=asked)
        return build_parts(config, make_strategy("one"), version, 3)

    saved(tmp_path / "same.weights.h5")
    saved(tmp_path / "other.weights.h5", "compact_resnet")
    saved(tmp_path / "grey.weights.h5", image_channels=1)
    freeze = "model.freeze=backbone"
    (taken, frozen) = parts("same", freeze).notes[:2]
    assert taken.startswith("weights: 8 of 9 layers come from ")
    assert frozen.startswith("frozen: 8 layers")
    with pytest.raises(ConfigError, match="are not in it"):
        parts("other", freeze)
    with pytest.raises(ConfigError, match=r"model\.freeze would keep random weights"):
        parts("grey", freeze, "model.partial_weights=true")
