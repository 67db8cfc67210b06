"""A dataset in a bucket, read from end to end: by ranges, staged, in TensorFlow, in several processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from shardmill import Dataset, open_dataset
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import NotFoundError, PublishConflict
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.config.reading import Decoder
from tests.samples.datasets.published import coloured, publish
from tests.samples.stores.object_store import KEY, SECRET, ObjectStore, serve_version
from tests.samples.training.trainer import settings

COUNTS = {"train": {"a": 24, "b": 12}, "validation": {"a": 4, "b": 4}}
READER = """
import json, sys
from shardmill import open_dataset
root, staging, rank, num_ranks = sys.argv[1:]
dataset = open_dataset("set", root=root, staging_dir=staging)
batches = dataset.batches("train", batch_size=8, image_size=16, rank=int(rank), num_ranks=int(num_ranks))
print(json.dumps([dataset.table("train").ids(batch.ordinals) for batch in batches]))
dataset.close()
"""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("datasets")
    publish(root, coloured(COUNTS), name="set", shards_per_split=4)
    return open_dataset("set", root=root)


@pytest.fixture(scope="module")
def store(local: Dataset) -> Iterator[ObjectStore]:
    with serve_version(local.version, "end-to-end") as running:
        yield running


def batches_of(dataset: Dataset, **options: Any) -> list[Any]:
    return list(dataset.batches("train", batch_size=8, image_size=16, seed=3, **options))


def test_numpy_batches_are_those_of_local_files(store: ObjectStore, local: Dataset, tmp_path: Path) -> None:
    wanted = batches_of(local, epochs=2)
    for staging in (None, tmp_path / "staged"):
        dataset = open_dataset("set", root=store.location("root"), staging_dir=staging)
        store.gets.clear()
        found = batches_of(dataset, epochs=2)
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert np.array_equal(one.images, other.images)
            assert np.array_equal(one.ordinals, other.ordinals)
        shards = Counter(path for path in store.gets if path.endswith(".gz"))
        assert (set(shards.values()) == {1}) is (staging is not None)
        dataset.close()


def test_tensorflow_reads_staged_shards(store: ObjectStore, local: Dataset, tmp_path: Path) -> None:
    options: dict[str, Any] = {"batch_size": 8, "image_size": 16, "seed": 3}
    for decoder in get_args(Decoder)[1:]:
        dataset = open_dataset(
            "set", root=store.location("root"), staging_dir=tmp_path / "staged", decoder=decoder
        )
        local.reading = dataset.reading
        pairs = zip(dataset.tf("train", **options), local.tf("train", **options), strict=True)
        for (images, labels), (local_images, local_labels) in pairs:
            assert np.array_equal(images, local_images)
            assert np.array_equal(labels, local_labels)
        dataset.close()


def test_two_processes_share_one_staging(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also: the endpoint by environment, and no options in the URI."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{store.port}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    root = f"s3://{store.bucket}/root"
    store.gets.clear()
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", READER, root, str(tmp_path / "staged"), str(rank), "2"],
            stdout=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    slices = [json.loads(reader.communicate(timeout=120)[0]) for reader in readers]
    assert [reader.returncode for reader in readers] == [0, 0]
    whole = open_dataset("set", root=root)
    steps = [
        whole.table("train").ids(batch.ordinals)
        for batch in whole.batches("train", batch_size=8, image_size=16)
    ]
    assert [left + right for left, right in zip(*slices, strict=True)] == steps
    shards = Counter(path for path in store.gets if "/train-" in path and path.endswith(".gz"))
    assert len(shards) == 4


@pytest.mark.slow
def test_a_training_run_from_a_bucket(store: ObjectStore, tmp_path: Path) -> None:
    config = settings(
        reading={"staging_dir": str(tmp_path / "staged")}, run={"epochs": 1, "trace_records": True}
    )
    root = store.location("root", credentials=f"{KEY}:{SECRET}@")
    command = [sys.executable, "-m", "shardmill.training.train", "set", "--json", "--root", root]
    command += ["--runs", str(tmp_path / "runs"), "--config-json", json.dumps(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["metrics"]["validation"]["num_examples"] == 8
    assert result["bad_records"] == []
    written = [path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert not [
        text for text in (done.stdout.encode(), done.stderr.encode(), *written) if SECRET.encode() in text
    ]
    assert len(list((tmp_path / "staged").rglob("*.shard"))) == len(Catalog(root).open("set").manifest.shards)


def test_writes_to_a_bucket_are_the_bytes_that_were_written(store: ObjectStore) -> None:
    storage = Storage.at(store.location("written"))
    data = os.urandom(1000)
    for name in ("a.tfrecord.gz", "b/c.parquet", "d"):
        storage.write_atomic(name, data)
        assert storage.read_bytes(name) == data
        assert storage.size(name) == len(data)
    storage.create_if_absent("manifests/000001.json", b"{}")
    with pytest.raises(PublishConflict, match="s3://end-to-end/written/manifests"):
        storage.create_if_absent("manifests/000001.json", b"{}")
    assert [entry.path for entry in storage.list_files()] == [
        "a.tfrecord.gz",
        "b/c.parquet",
        "d",
        "manifests/000001.json",
    ]
    with pytest.raises(NotFoundError, match="no dataset 'other' under s3://end-to-end/root"):
        open_dataset("other", root=store.location("root"))
