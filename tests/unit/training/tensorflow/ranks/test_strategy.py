"""The distribution of batches to the replicas of a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardmill import Dataset
from shardmill.infra.settings import load_settings
from shardmill.training.config import TrainConfig
from shardmill.training.run.files.folds import divide_train_split
from tests.samples.datasets.published import coloured, publish

pytest.importorskip("tensorflow")


@pytest.mark.parametrize(
    ("more", "tuned"),
    [([], False), (["augment.randaugment.num_ops=1"], False), (["reading.decoder=tensorflow"], True)],
)
def test_tensorflow_tunes_only_what_it_decodes(tmp_path: Path, more: list[str], tuned: bool) -> None:
    """The end of a tuned iterator may wait for the thread that tunes it, for up to a minute."""
    from shardmill.training.reading.opening import open_for_run
    from shardmill.training.tensorflow.data.opening import open_pipeline
    from shardmill.training.tensorflow.ranks.strategy import without_tuning

    version = publish(tmp_path, coloured({"train": {"a": 9, "b": 7}}, size=(8, 8)), name="set")
    overrides = ["data.image_size=8", "data.global_batch_size=4", *more]
    config = load_settings(TrainConfig, section="train", overrides=overrides)
    reader = Dataset(version, config.reading).reader("train")
    order = divide_train_split(config.data, reader, version.manifest.classes).order
    pipeline: Any = open_pipeline(open_for_run(config, reader, order), threads=3)
    assert getattr(pipeline, "pipeline", pipeline).batches.threads == 3
    dataset = without_tuning(pipeline, pipeline.dataset(0, 3))
    assert (dataset.options().autotune.enabled is not False) == tuned
    assert len(list(dataset)) == 3
