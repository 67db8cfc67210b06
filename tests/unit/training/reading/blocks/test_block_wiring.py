"""An order by block is read by whole blocks, whoever asks for it: training runs, ``.tf`` and ``.batches``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill import Dataset, open_dataset
from shardmill.infra.errors import ConfigError
from shardmill.infra.settings import validate
from shardmill.training.config import TrainConfig
from shardmill.training.config.reading import ReadingSettings
from shardmill.training.order import order_from_settings
from shardmill.training.reading.opening import open_for_run
from shardmill.training.tensorflow.data.indexed import IndexedPipeline
from shardmill.training.tensorflow.data.opening import open_pipeline
from shardmill.training.tensorflow.data.pipeline import Pipeline
from tests.samples.datasets.published import coloured, publish
from tests.samples.datasets.range_reads import note_reads

COUNTS = {"train": {"a": 60, "b": 36}, "validation": {"a": 3}}
BY_BLOCK: dict[str, Any] = {"granularity": "block", "block_records": 6, "window_blocks": 4}
NUM_BLOCKS, STEPS = 16, 12


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("sets")
    publish(root, coloured(COUNTS), name="set", shards_per_split=4, container="none")
    return open_dataset("set", root=root)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    return note_reads(monkeypatch)


def opened(dataset: Dataset, data: dict[str, Any], **reading: Any) -> Pipeline:
    asked = {"data": {"global_batch_size": 8, "image_size": 16, **data}, "reading": reading}
    config = validate(TrainConfig, asked, where="the test")
    reader = dataset.reader("train")
    order = order_from_settings(config.data, reader.table, dataset.classes)
    return open_pipeline(open_for_run(config, reader, order))


def records(made: Pipeline, start: int, stop: int) -> list[int]:
    made.prepare(start, stop)
    batches = made.dataset(start, stop).as_numpy_iterator()
    return [ordinal for batch in batches for ordinal in batch["ordinals"].tolist()]


@pytest.mark.parametrize("decoder", ["turbo", "tensorflow"])
def test_a_training_run_reads_by_block(
    dataset: Dataset, reads: list[tuple[str, int, int]], decoder: str
) -> None:
    made = opened(dataset, BY_BLOCK, decoder=decoder)
    assert sorted(records(made, 0, STEPS)) == list(range(96))
    if decoder == "turbo":
        assert len(reads) == NUM_BLOCKS
    else:  # TensorFlow reads several steps at a time; one that is late may find its window gone
        assert NUM_BLOCKS <= len(reads) < 96


def test_a_cache_in_memory_spares_the_windows_too(
    dataset: Dataset, reads: list[tuple[str, int, int]]
) -> None:
    made = opened(dataset, BY_BLOCK, cache="memory")
    first = records(made, 0, STEPS)
    assert len(reads) == NUM_BLOCKS
    again = records(made, STEPS, 2 * STEPS)
    assert sorted(again) == sorted(first)
    assert again != first
    assert len(reads) == NUM_BLOCKS


def test_a_cache_on_disk_needs_no_windows(
    dataset: Dataset, reads: list[tuple[str, int, int]], tmp_path: Path
) -> None:
    made = opened(dataset, BY_BLOCK, cache="disk", cache_dir=str(tmp_path))
    in_runs = len(reads)
    assert sorted(records(made, 0, STEPS)) == list(range(96))
    assert len(reads) == in_runs


def test_an_order_by_record_has_no_windows(dataset: Dataset, reads: list[tuple[str, int, int]]) -> None:
    assert sorted(records(opened(dataset, {}), 0, STEPS)) == list(range(96))
    assert dataset.reader("train", None).windows.num_bytes == 0


def test_in_python(dataset: Dataset, reads: list[tuple[str, int, int]]) -> None:
    told: dict[str, Any] = {"batch_size": 8, "image_size": 16, **BY_BLOCK}
    found = list(dataset.batches("train", **told))
    assert len(reads) == NUM_BLOCKS
    for batch, (images, labels) in zip(found, dataset.tf("train", **told).as_numpy_iterator(), strict=True):
        assert np.array_equal(images, batch.images)
        assert np.array_equal(labels, batch.labels)
    assert len(reads) == 2 * NUM_BLOCKS
    list(dataset.batches("validation", batch_size=2, image_size=16))


def test_windows_count_against_the_memory_for_reading(dataset: Dataset) -> None:
    settings = ReadingSettings().model_copy(update={"ram_budget_bytes": 1000})  # less than one may ask for
    small = Dataset(dataset.version, settings)
    with pytest.raises(
        ConfigError, match=r"windows of an order by block take up to .* may take 1,000"
    ) as caught:
        small.batches("train", **BY_BLOCK)
    assert "lower window_blocks or block_records" in str(caught.value.remedy)
    made = opened(dataset, BY_BLOCK)
    assert isinstance(made, IndexedPipeline)
    assert made.budget is not None
    assert made.budget.windows == made.reader.windows.num_bytes > 0
    assert made.budget.tuned == ReadingSettings().ram_budget_bytes - made.budget.windows
