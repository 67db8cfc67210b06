"""A view is read like a version that holds only its records: the same order, blocks, caches and sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill import Dataset, open_dataset
from shardmill.infra.errors import DataError, NotFoundError
from shardmill.infra.settings import validate
from shardmill.training.config import TrainConfig
from shardmill.training.reading import load_table, open_records
from shardmill.training.results.run_files.run_folder import RunFolder
from shardmill.training.run.files.folds import divide_train_split
from shardmill.training.run.files.identity import run_identity, run_name
from shardmill.training.train import train_dataset
from tests.samples.datasets.published import coloured, publish

COUNTS = {"train": {"cat": 14, "dog": 22, "eel": 9}, "validation": {"cat": 3, "eel": 2}, "test": {"dog": 4}}
QUERY = "label != 'dog' and not endswith(id, '0')"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    publish(folder, coloured(COUNTS), name="zoo", shards_per_split=3)
    return folder


@pytest.fixture(scope="module")
def view(root: Path) -> Dataset:
    return open_dataset(f"zoo@1?{QUERY}", root=root)


def expected(root: Path, split: str) -> list[tuple[str, int]]:
    """(id, label) of the records that the query selects, in stored order."""
    table = open_dataset("zoo", root=root).table(split)
    found = zip(table.ids(np.arange(len(table))), table.label.tolist(), strict=True)
    return [(name, label) for name, label in found if label != 1 and not name.endswith("0")]


def taken(dataset: Dataset, **options: Any) -> list[tuple[str, int]]:
    """(id, label) of the examples of an epoch, in the order of the batches."""
    table, found = dataset.table("train"), []
    for batch in dataset.batches("train", batch_size=4, image_size=16, threads=1, **options):
        rows = batch.ordinals[batch.weights > 0] if batch.weights is not None else batch.ordinals
        found += list(zip(table.ids(rows), table.label[rows].tolist(), strict=True))
    return found


def test_a_view_has_its_records_with_the_numbers_of_the_classes(root: Path, view: Dataset) -> None:
    assert view.classes == ["cat", "dog", "eel"]
    assert view.splits == ["train", "validation"]
    for split in view.splits:
        table = view.table(split)
        found = list(zip(table.ids(np.arange(len(table))), table.label.tolist(), strict=True))
        assert found == expected(root, split)
    with pytest.raises(NotFoundError, match="no split 'test'"):
        view.table("test")
    record = view.reader("train").read(0)
    assert (record.id, record.label) == expected(root, "train")[0]


def test_the_order_depends_on_version_query_seed_and_epoch_alone(root: Path, view: Dataset) -> None:
    first = taken(view, seed=3, last_batch="pad")
    assert sorted(first) == sorted(expected(root, "train"))
    again = open_dataset("zoo", root=root).query(f"({QUERY.replace(chr(39), chr(34))})")
    assert taken(again, seed=3, last_batch="pad") == first
    assert taken(view, seed=4, last_batch="pad") != first
    ranks = [view.batches("train", batch_size=4, image_size=16, seed=3, rank=r, num_ranks=2) for r in (0, 1)]
    together = [
        np.concatenate([one.ordinals, other.ordinals]).tolist() for one, other in zip(*ranks, strict=True)
    ]
    alone = [batch.ordinals.tolist() for batch in view.batches("train", batch_size=4, image_size=16, seed=3)]
    assert together == alone


@pytest.mark.parametrize(
    "reading", [{}, {"cache": "memory"}, {"cache": "disk"}, {"cache": "disk", "cache_form": "decoded"}]
)
@pytest.mark.parametrize("order", [{}, {"granularity": "block", "block_records": 3, "window_blocks": 2}])
def test_blocks_and_caches_give_the_images_of_the_view(
    tmp_path: Path, root: Path, view: Dataset, reading: dict[str, Any], order: dict[str, Any]
) -> None:
    reading = {**reading, **({"cache_dir": str(tmp_path)} if reading else {})}
    cached = open_dataset(f"zoo@1?{QUERY}", root=root, **reading)
    options: Any = {"batch_size": 4, "image_size": 16, "training": False, **order}
    for _ in range(2):
        pairs = zip(
            cached.batches("train", **options),
            view.batches("train", batch_size=4, image_size=16, training=False),
            strict=True,
        )
        by_id: dict[str, Any] = {}
        for ours, plain in pairs:
            by_id |= dict(zip(view.table("train").ids(plain.ordinals), plain.images, strict=True))
            for name, image in zip(cached.table("train").ids(ours.ordinals), ours.images, strict=True):
                assert np.array_equal(by_id[name], image)
    cached.close()


def test_a_cache_on_disk_is_of_one_view(tmp_path: Path, root: Path, view: Dataset) -> None:
    for ref in ("zoo@1", f"zoo@1?{QUERY}"):
        dataset = open_dataset(ref, root=root, cache="disk", cache_dir=str(tmp_path))
        assert len(taken(dataset, training=False)) == len(dataset.table("train"))
        dataset.close()
    assert len(list(tmp_path.glob("*.cache"))) == 2


def test_sources_and_groups_of_folds_are_those_of_the_records(root: Path, view: Dataset) -> None:
    table, scanned = view.table("train"), view.query("split == 'train'").to_arrow(["id", "sha256"]).to_table()
    assert scanned["id"].to_pylist() == table.ids(np.arange(len(table)))
    assert view.version.rows(view.version.shards("train")[0], ["sha256"]).column_names == ["sha256"]
    config = validate(TrainConfig, {"data": {"folds": 3, "left_out_fold": 1}}, where="the test")
    divided = divide_train_split(config.data, view.reader("train"), view.classes)
    assert divided.left_out is not None
    assert 0 < len(divided.left_out) < len(table)


def test_a_run_records_its_view(tmp_path: Path, root: Path, view: Dataset) -> None:
    identity = run_identity(TrainConfig(), view.version)
    assert identity["dataset"] == view.version.ref
    assert identity["view"]["digest"] == view.version.view_digest
    whole = open_dataset("zoo", root=root).version
    assert "view" not in run_identity(TrainConfig(), whole)
    assert run_name(TrainConfig(), whole) != run_name(TrainConfig(), view.version)
    run = RunFolder(tmp_path, identity, None)
    assert run.evaluation_dir(view.version.ref) == tmp_path
    assert run.evaluation_dir("zoo@1") == tmp_path / "evaluations" / "zoo-v1"
    other = run.evaluation_dir("zoo@1?label == 'cat'/../..").relative_to(tmp_path / "evaluations")
    assert str(other).startswith("zoo-v1-view-")


def test_a_view_without_train_examples_is_not_trained_on(tmp_path: Path, root: Path) -> None:
    with pytest.raises(DataError, match="2 examples in validation") as caught:
        train_dataset("zoo?label == 'eel' and split == 'validation'", TrainConfig(), root=root, runs=tmp_path)
    assert "another query" in str(caught.value)


@pytest.mark.slow
def test_a_view_is_streamed_too(root: Path, view: Dataset) -> None:
    streamed = open_dataset(f"zoo@1?{QUERY}", root=root, mode="streaming")
    pairs = streamed.tf("train", batch_size=4, image_size=16, last_batch="pad")
    labels = [
        label
        for _, found, weights in pairs
        for label, weight in zip(found.numpy(), weights.numpy(), strict=True)
        if weight
    ]
    assert sorted(labels) == sorted(label for _, label in expected(root, "train"))


def test_the_table_of_a_view_checks_its_index_like_any_other(root: Path, view: Dataset) -> None:
    table = load_table(view.version, "train")
    read = open_records(view.version, table).read_images(np.arange(len(table)))
    assert len(read) == len(expected(root, "train"))
