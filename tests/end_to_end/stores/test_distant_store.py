"""Reading from a store that is 50 ms away: the same batches, within the budgets of disk and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill import open_dataset
from shardmill.infra.dataset.version import DatasetVersion
from tests.samples.datasets.published import Picture, publish
from tests.samples.stores.faulty_proxy import faulty_proxy
from tests.samples.stores.object_store import ObjectStore, serve_version

pytestmark = pytest.mark.slow

NUM_SHARDS, IN_A_SHARD = 12, 12
OPTIONS: dict[str, Any] = {
    "batch_size": 3,
    "image_size": 32,
    "granularity": "block",
    "block_records": IN_A_SHARD,
    "window_blocks": 2,
}
READER = """
import json, resource, sys
from pathlib import Path
from shardmill import open_dataset
root, staging, budget, options = sys.argv[1:]
dataset = open_dataset("set", root=root, staging_dir=staging, staging_bytes=int(budget))
batches, sums, most = dataset.batches("train", **json.loads(options)), [], 0
for batch in batches:
    sums.append(int(batch.images.astype("int64").sum()))
    most = max(most, sum(file.stat().st_size for file in Path(staging).rglob("*.*") if file.is_file()))
    if len(sums) == 8:  # by now a step has all the memory that it needs
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
dataset.close()
print(json.dumps([sums, most, (after - before) << 10]))
"""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> DatasetVersion:
    """Shards of 12 pictures of noise, of 0.6 MB each."""
    chance = np.random.default_rng(0)
    pictures = [
        Picture("train", "ab"[number % 2], chance.integers(0, 256, (450, 450, 3), np.uint8))
        for number in range(IN_A_SHARD * NUM_SHARDS)
    ]
    root = tmp_path_factory.mktemp("datasets")
    return publish(root, pictures, name="set", shards_per_split=NUM_SHARDS, encoding="png")


@pytest.fixture(scope="module")
def store(local: DatasetVersion) -> Iterator[ObjectStore]:
    with serve_version(local, "distant") as running:
        yield running


def test_batches_are_the_same_and_budgets_hold(
    store: ObjectStore, local: DatasetVersion, tmp_path: Path
) -> None:
    sizes = [shard.num_bytes for shard in local.shards("train")]
    budget = 7 * max(sizes)
    with faulty_proxy(store.port) as proxy:
        proxy.delay_seconds = 0.05
        root = f"s3://distant/root?endpoint_override=127.0.0.1:{proxy.port}&scheme=http&region=us-east-1"
        command = [sys.executable, "-c", READER, root, str(tmp_path / "staged"), str(budget)]
        command.append(json.dumps(OPTIONS))
        done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    sums, most_bytes, more_memory = json.loads(done.stdout)
    dataset = open_dataset("set", root=Path(local.storage.uri).parent)
    assert sums == [int(batch.images.astype("int64").sum()) for batch in dataset.batches("train", **OPTIONS)]
    dataset.close()
    assert 2 * max(sizes) < most_bytes <= budget < sum(sizes)
    # Five fetches at a time, of 4 MiB in two copies; the split is more than twice as large.
    assert more_memory < 40 << 20
    assert sum(sizes) > 80 << 20
