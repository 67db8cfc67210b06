"""Images per second of a first epoch: from the local disk, and staged from an object store, near and far.

    python -m tests.benchmarks.read.object_store [--images 4000] [--rounds 3] [--latency 0.05] [--rate 0]

Shards of about 5 MB lie in MinIO on this machine (``minio`` on the path, or ``$MINIO``). Each round reads an
epoch in the order by block (windows of four blocks, a block a shard) into batches of 128 images of 224
pixels, from the disk, staged into an empty folder, and staged through a connection that delays each request.
The rate counts from the call that opens the dataset to the last batch, so it includes the wait for the first
shards.

The server and the proxy run on the same cores as the reader, so the difference includes their CPU time and
the time of staging. With a remote store it would not. *CPU* is the time of the reading process alone.
``--rate 1000`` waits between batches as for an accelerator that takes 1,000 images a second.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

from shardmill import open_dataset
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.config import AugmentSettings
from tests.samples.clusters.load_balancer import balancing
from tests.samples.datasets.published import Picture, publish
from tests.samples.stores.minio import minio, minio_location

SIZE, BATCH, RECORDS_OF_A_SHARD = 224, 128, 100


class Epoch(NamedTuple):
    """An epoch: images a second, seconds to the first batch, CPU microseconds an image."""

    rate: float
    first_seconds: float
    cpu_microseconds: float


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--latency", type=float, default=0.05, help="seconds before each request of the far store"
    )
    parser.add_argument(
        "--rate", type=float, default=0.0, help="images a second that a training takes (0: no limit)"
    )
    parser.add_argument("--far", metavar="PORT", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.far is not None:
        return serve_far(int(args.far), args.latency)
    with tempfile.TemporaryDirectory() as made:
        measure(Path(made), args.images, args.rounds, args.latency, args.rate)
    return None


def measure(folder: Path, num_images: int, rounds: int, latency: float, rate: float) -> None:
    """Publish a dataset, copy it to a server, and print the table."""
    (folder / "server").mkdir()
    version = publish(
        folder / "root",
        pictures(num_images),
        name="made",
        shards_per_split=max(num_images // RECORDS_OF_A_SHARD, 1),
        quality=90,
    )
    num_bytes = sum(shard.num_bytes for shard in version.shards("train"))
    print(f"{num_images:,} images, {len(version.shards('train'))} shards, {num_bytes / 1e6:.0f} MB")
    with minio(folder / "server") as port, far_from(port, latency) as far:
        copy(folder / "root", minio_location(port, "root"))
        places = {
            "local": str(folder / "root"),
            "store": minio_location(port, "root"),
            f"store, {latency * 1000:.0f} ms a request": minio_location(far, "root"),
        }
        found: dict[str, list[Epoch]] = {name: [] for name in places}
        epoch(places["local"], None, 0.0)  # warm
        for number in range(rounds):
            for name, root in places.items():
                staging = None if name == "local" else folder / f"staged-{number}-{name[-3:]}"
                found[name].append(epoch(root, staging, rate))
    print(f"{'':<28}{'images/s':>10}{'of local':>10}{'first batch, s':>16}{'CPU µs':>9}")
    for name, epochs in found.items():
        pairs = zip(epochs, found["local"], strict=True)
        share = statistics.median(one.rate / other.rate for one, other in pairs)
        rate, first, cpu = (statistics.median(column) for column in zip(*epochs, strict=True))
        print(f"{name:<28}{rate:>10,.0f}{share:>10.2f}{first:>16.2f}{cpu:>9,.0f}")


def epoch(root: str, staging: Path | None, rate: float) -> Epoch:
    """Read the train split once, by a training that takes ``rate`` images a second (0: no limit)."""
    begun, used = time.perf_counter(), time.process_time()
    dataset = open_dataset("made", root=root, staging_dir=staging)
    options: dict[str, Any] = {
        "granularity": "block",
        "block_records": RECORDS_OF_A_SHARD,
        "window_blocks": 4,
    }
    batches = dataset.batches(
        "train", batch_size=BATCH, image_size=SIZE, augment=AugmentSettings(scale=(0.08, 1.0)), **options
    )
    first, images, ready = 0.0, 0, 0.0
    for batch in batches:
        first = first or time.perf_counter() - begun
        images += len(batch.labels)
        if rate:
            # The accelerator starts on a batch when it has ended the one before.
            ready = max(ready, time.perf_counter()) + len(batch.labels) / rate
            time.sleep(max(ready - time.perf_counter(), 0.0))
    seconds, cpu = time.perf_counter() - begun, time.process_time() - used
    dataset.close()
    return Epoch(images / seconds, first, cpu / images * 1e6)


def pictures(count: int) -> list[Picture]:
    """Pictures of 256 × 341 pixels that are about as hard to decode as photographs."""
    chance = np.random.default_rng(0)
    made = []
    for number in range(count):
        noise = chance.integers(0, 256, (256, 341, 3), dtype=np.uint8)
        smooth = cv2.GaussianBlur(noise, (0, 0), 1.2)
        picture = cv2.convertScaleAbs(smooth, alpha=2.2, beta=-150.0)
        made.append(Picture("train", f"class {number % 10}", picture))
    return made


def copy(root: Path, location: str) -> None:
    """Copy all files of a folder to the store."""
    store = Storage.at(location)
    for path in root.rglob("*"):
        if path.is_file():
            store.write_atomic(str(path.relative_to(root)), path.read_bytes())


@contextmanager
def far_from(port: int, latency: float) -> Iterator[int]:
    """A way to the server that delays each request, in a process of its own; its port."""
    command = [sys.executable, "-m", __spec__.name, "--far", str(port), "--latency", str(latency)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.communicate()  # the end of its input ends it


def serve_far(port: int, latency: float) -> None:
    """Serve until the end of the input."""
    with balancing([port], latency) as far:
        print(far, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
