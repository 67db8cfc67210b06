"""The model of a finished run, built again from its settings and weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmill import open_dataset
from shardmill.training.config import TrainConfig
from tests.samples.datasets.published import coloured, publish


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of Keras, while saving
@pytest.mark.parametrize("channels", [1, 3])
def test_a_model_is_evaluated_on_the_channels_it_was_trained_on(tmp_path: Path, channels: int) -> None:
    pytest.importorskip("tensorflow")
    from shardmill.training.run.framework import model_spec
    from shardmill.training.tensorflow.framework import WEIGHTS_FILE, TensorFlow
    from shardmill.training.tensorflow.models import build_model
    from shardmill.training.tensorflow.ranks.strategy import make_strategy

    publish(tmp_path, coloured({"train": {"a": 3, "b": 1}, "test": {"a": 5, "b": 2}}), name="set")
    dataset = open_dataset("set", root=tmp_path)
    data = {"image_size": 16, "image_channels": channels, "global_batch_size": 4}
    config = TrainConfig.model_validate({"data": data})
    model = build_model(model_spec(config, dataset.version, 2, 1))
    model.save_weights(tmp_path / WEIGHTS_FILE)
    assert model.input_shape == (None, 16, 16, channels)
    evaluator = TensorFlow(make_strategy("one")).open_trained(config, dataset.version, tmp_path)
    found = evaluator.evaluate(dataset.reader("test"), lambda _: None)
    assert found.num_examples == 7
