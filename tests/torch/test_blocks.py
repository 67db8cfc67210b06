"""An order by block through a loader: whole blocks are read, in workers too, as far as memory reaches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from shardmill import Dataset
from shardmill.infra.errors import ConfigError
from shardmill.training.config.data import DataSettings
from shardmill.training.config.reading import ReadingSettings
from shardmill.training.order import order_from_settings
from shardmill.training.torch.data import opening
from tests.samples.datasets.range_reads import note_reads

BY_BLOCK: dict[str, Any] = {"granularity": "block", "block_records": 4, "window_blocks": 4}
TOLD: dict[str, Any] = {"batch_size": 6, "seed": 3, "num_epochs": 2, "last_batch": "drop", **BY_BLOCK}
NUM_BLOCKS = 15  # of 53 records in shards of 18, 18 and 17


def window_bytes(dataset: Dataset) -> int:
    data = DataSettings(global_batch_size=6, seed=3, last_batch="drop", **BY_BLOCK)
    order = order_from_settings(data, dataset.table("train"), dataset.classes)
    return dataset.reader("train", order).windows.num_bytes


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    return note_reads(monkeypatch)


@pytest.mark.parametrize(
    ("image_size", "num_workers", "context"),
    [(16, 0, None), (16, 2, "fork"), (16, 2, "spawn"), (None, 0, None), (None, 2, "fork")],
)
def test_batches_are_those_of_numpy(
    dataset: Dataset, image_size: int | None, num_workers: int, context: Any
) -> None:
    told = {"num_workers": num_workers, "multiprocessing_context": context, **TOLD}
    loader = dataset.torch("train", image_size=image_size, **told)
    wanted = list(dataset.batches("train", batch_size=6, image_size=16, seed=3, epochs=2, **BY_BLOCK))
    found = [batch for _ in range(2) for batch in loader]
    assert len(found) == len(wanted) == 16
    for batch, want in zip(found, wanted, strict=True):
        assert np.array_equal(batch.ordinals.numpy(), want.ordinals)
        if image_size is not None:
            assert torch.equal(batch.images.permute(0, 2, 3, 1), torch.from_numpy(want.images))


@pytest.mark.parametrize("image_size", [16, None])
def test_each_block_is_read_once_an_epoch(
    dataset: Dataset, reads: list[tuple[str, int, int]], image_size: int | None
) -> None:
    loader = dataset.torch("train", image_size=image_size, num_workers=0, **{**TOLD, "num_epochs": 1})
    assert len(list(loader)) == 8
    assert len(reads) == NUM_BLOCKS


def test_preloaded_records_need_no_windows(dataset: Dataset, reads: list[tuple[str, int, int]]) -> None:
    loader = dataset.torch("train", image_size=16, num_workers=0, preload=True, **{**TOLD, "num_epochs": 1})
    before = len(reads)
    assert len(list(loader)) == 8
    assert len(reads) == before


def test_workers_have_windows_of_their_own_which_must_fit(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = 3 * window_bytes(dataset) + 1  # less than one may ask for
    settings = ReadingSettings().model_copy(update={"ram_budget_bytes": budget})
    tight = Dataset(dataset.version, settings)
    monkeypatch.setattr(opening, "auto_workers", lambda: 8)
    assert tight.torch("train", image_size=16, **TOLD).num_workers == 3
    assert tight.torch("train", image_size=16, num_workers=3, **TOLD).num_workers == 3
    with pytest.raises(ConfigError, match="of 4 processes take up to") as caught:
        tight.torch("train", image_size=16, num_workers=4, **TOLD)
    assert "have fewer processes" in str(caught.value.remedy)


def test_a_loader_that_goes_on_elsewhere(dataset: Dataset) -> None:
    loader = dataset.torch("train", image_size=16, num_workers=2, **TOLD)
    seen = []
    for batch in loader:
        seen.append(batch.ordinals.tolist())
        if batch.step == 4:
            break
    other = dataset.torch("train", image_size=16, num_workers=0, **TOLD)
    other.load_state_dict(loader.state_dict())
    seen += [batch.ordinals.tolist() for _ in range(2) for batch in other]
    wanted = dataset.batches("train", batch_size=6, image_size=16, seed=3, epochs=2, **BY_BLOCK)
    assert seen == [batch.ordinals.tolist() for batch in wanted]
