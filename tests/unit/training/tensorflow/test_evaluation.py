"""Evaluation: every record once, the same each time, from a pipeline that is made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmill import open_dataset
from shardmill.training.config.data import DataSettings
from shardmill.training.models import ModelSpec
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.tensorflow.models import build_model
from tests.samples.datasets.published import coloured, publish


def test_a_split_is_evaluated_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline for each epoch's validation would stay in memory to the end of the run."""
    tf = pytest.importorskip("tensorflow")
    from shardmill.training.tasks.single_label import SingleLabel
    from shardmill.training.tensorflow.data.indexed import IndexedPipeline
    from shardmill.training.tensorflow.evaluation import KerasEvaluator
    from shardmill.training.tensorflow.operations import OPERATIONS

    made = []
    whole = IndexedPipeline.dataset
    monkeypatch.setattr(
        IndexedPipeline, "dataset", lambda self, *args: made.append(self) or whole(self, *args)
    )
    publish(tmp_path, coloured({"test": {"a": 7, "b": 4}}), name="set")
    reader = open_dataset("set", root=tmp_path).reader("test")
    spec = ModelSpec("tests.samples.models.linear_model", num_classes=2, image_size=8)
    examples = ExampleSpec(image_size=8, data=DataSettings(global_batch_size=4))
    task = SingleLabel(OPERATIONS, 2)
    evaluator = KerasEvaluator(tf.distribute.get_strategy(), build_model(spec), task, examples)
    seen: list[int] = []
    first, second = (evaluator.evaluate(reader, seen.append) for _ in range(2))
    assert first.confusion.sum(axis=1).tolist() == [7, 4]
    assert (second.confusion.tolist(), second.loss) == (first.confusion.tolist(), first.loss)
    assert seen == [4, 8, 11, 4, 8, 11]
    assert len(made) == 1
