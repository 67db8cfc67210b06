"""Caches and preloading through a loader: equal pixels, shared by workers and ranks, without the shards."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from shardmill import open_dataset
from shardmill.infra.errors import UsageError
from shardmill.training.torch.data import PreloadedRecords, TorchLoader
from tests.samples.datasets.published import coloured, publish

COUNTS = {"train": {"a": 14, "b": 9}}
TOLD: dict[str, Any] = {"batch_size": 6, "image_size": 16, "seed": 3, "last_batch": "pad", "num_epochs": 2}

Opening = Callable[..., TorchLoader]


@pytest.fixture
def opening(tmp_path: Path) -> Opening:
    """Opens loaders of a dataset whose shards may be removed."""
    publish(tmp_path / "datasets", coloured(COUNTS), name="set", shards_per_split=3)

    def open_(reading: dict[str, Any] | None = None, **told: Any) -> TorchLoader:
        dataset = open_dataset("set@1", root=tmp_path / "datasets", **(reading or {}))
        return dataset.torch("train", **{**TOLD, **told})

    return open_


def remove_shards(folder: Path) -> None:
    shards = list(folder.glob("datasets/set/data/*/*.tfrecord*"))
    assert len(shards) == 3
    for shard in shards:
        shard.unlink()


def assert_same(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted) == 4
    for left, right in zip(found, wanted, strict=True):
        assert torch.equal(left.ordinals, right.ordinals)
        assert torch.equal(left.images, right.images)


@pytest.mark.parametrize(
    ("form", "num_workers", "context", "persistent"),
    [
        ("encoded", 0, None, True),
        ("decoded", 0, None, True),
        ("decoded", 2, "fork", False),
        ("encoded", 2, "fork", True),
        ("decoded", 2, "spawn", True),
    ],
)
def test_a_cache_in_memory_serves_the_second_epoch(
    opening: Opening, tmp_path: Path, form: str, num_workers: int, context: Any, persistent: bool
) -> None:
    plain = opening(num_workers=0)
    wanted = [list(plain), list(plain)]
    loader = opening(
        {"cache": "memory", "cache_form": form},
        num_workers=num_workers,
        multiprocessing_context=context,
        persistent_workers=persistent,
    )
    assert_same(list(loader), wanted[0])
    remove_shards(tmp_path)
    assert_same(list(loader), wanted[1])


@pytest.mark.parametrize(
    ("form", "num_workers", "context"),
    [("encoded", 0, None), ("decoded", 0, None), ("decoded", 2, "fork"), ("decoded", 1, "spawn")],
)
def test_a_cache_on_disk_is_whole_and_shared_by_ranks(
    opening: Opening, tmp_path: Path, form: str, num_workers: int, context: Any
) -> None:
    wanted = list(opening(num_workers=0))
    reading = {"cache": "disk", "cache_form": form, "cache_dir": tmp_path / "cache"}
    told = {"num_workers": num_workers, "multiprocessing_context": context, "num_epochs": 1}
    ranks = [opening(reading, rank=rank, num_ranks=2, **told) for rank in range(2)]
    assert len(list((tmp_path / "cache").glob("*.cache"))) == 1
    remove_shards(tmp_path)
    parts = zip(*ranks, strict=True)
    found = [first._replace(**joined(first, second)) for first, second in parts]
    assert_same(found, wanted)


def joined(first: Any, second: Any) -> dict[str, Any]:
    return {name: torch.cat([getattr(first, name), getattr(second, name)]) for name in ("images", "ordinals")}


@pytest.mark.parametrize(
    ("preload", "num_workers", "context"),
    [(True, 0, None), ("encoded", 2, "fork"), ("decoded", 2, "fork"), ("decoded", 1, "spawn")],
)
def test_preloaded_records_need_no_shards(
    opening: Opening, tmp_path: Path, preload: Any, num_workers: int, context: Any
) -> None:
    wanted = list(opening(num_workers=0))
    loader = opening(preload=preload, num_workers=num_workers, multiprocessing_context=context, num_epochs=1)
    remove_shards(tmp_path)
    assert_same(list(loader), wanted)


def test_whole_images_come_from_a_decoded_cache(opening: Opening, tmp_path: Path) -> None:
    told = {"image_size": None, "num_workers": 0, "num_epochs": 1}
    wanted = list(opening(**told))
    loader = opening({"cache": "disk", "cache_form": "decoded", "cache_dir": tmp_path / "cache"}, **told)
    remove_shards(tmp_path)
    assert_same(list(loader), wanted)


def test_preloaded_records_stay_on_this_machine(opening: Opening, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="preload = 'memory'"):
        opening(preload="memory")
    reader = open_dataset("set@1", root=tmp_path / "datasets").reader("train")
    records = PreloadedRecords(reader, "decoded")
    assert records.image_encoding == "raw"
    with pytest.raises(TypeError, match="only the processes that this one starts"):
        pickle.dumps(records)
