"""Images per second of the indexed pipeline, the codec's limit and the tutorial pipeline.

    python -m tests.benchmarks.read_rate [--dataset NAME[@V] --root DIR] [--seconds 5] [--rounds 5]

All three decode the same stored JPEGs, cut a random resized crop to 224 pixels, flip every other one and make
batches of 256 (uint8), warm. They run one after the other, round by round; the medians count, so that what
else the machine does falls on all alike. Without ``--dataset`` one of 512 pictures of 256 pixels is made.

* *limit*: ``tf.io.decode_and_crop_jpeg`` and ``tf.image.resize`` in a tight loop on two threads, over
  bytes in memory; no batches.
* *indexed*: shards at rest -> training.pipelines.indexed.
* *tutorial*: what guides teach: ``TFRecordDataset``, shuffle, one ``map`` that decodes the whole image,
  crops, resizes and flips, ``batch``; nothing parallel, no prefetch.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from tests.samples.published import Picture, publish
from training import tensorflow_runtime
from training.augment import flips, keys_at, windows
from training.config import AugmentSettings
from training.dataset import Dataset, open_dataset
from training.order import TrainingOrder

SIZE, BATCH, THREADS = 224, 256, 2
AUGMENT = AugmentSettings(scale=(0.08, 1.0))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", metavar="NAME[@V]")
    parser.add_argument("--root", type=Path, default=Path("datasets"))
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    tensorflow_runtime.start()
    with tempfile.TemporaryDirectory() as made:
        dataset = open_dataset(args.dataset, args.root) if args.dataset else make_dataset(Path(made))
        measure(dataset, args.seconds, args.rounds)


def measure(dataset: Dataset, seconds: float, rounds: int) -> None:
    """Interleaved medians of all ways to read the train split."""
    rates: dict[str, list[float]] = {}
    ways = {"limit": limit(dataset), "indexed": indexed(dataset), "tutorial": tutorial(dataset)}
    for name, way in ways.items():
        way(seconds / 2)  # warm: files in the page cache, graphs traced, autotuning settled
        rates[name] = []
    for _ in range(rounds):
        for name, way in ways.items():
            rates[name].append(way(seconds))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    container = dataset.version.manifest.container
    print(f"{dataset.version.ref}, container {container}: random resized crop {SIZE}, flip, batch {BATCH}")
    for name, rate in medians.items():
        share, times = rate / medians["limit"], rate / medians["tutorial"]
        print(f"{name:<10} {rate:8,.0f} images/s   {share:5.2f} of the limit   {times:5.2f} × tutorial")


def batches_of(dataset: Any, seconds: float) -> float:
    """Images per second of a ``tf.data`` pipeline; the first batch fills its buffers and does not count."""
    batches = iter(dataset)
    next(batches)
    started, images = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        next(batches)
        images += BATCH
    return images / (time.perf_counter() - started)


def indexed(dataset: Dataset) -> Callable[[float], float]:
    """Our pipeline."""
    from training.pipelines.indexed import IndexedPipeline

    reader = dataset.reader("train")
    order = TrainingOrder(reader.table.label, seed=0, global_batch_size=BATCH)
    pipeline = IndexedPipeline(reader, order, SIZE, AUGMENT)
    endless = pipeline.dataset(0, 1_000_000)
    return lambda seconds: batches_of(endless, seconds)


def limit(dataset: Dataset) -> Callable[[float], float]:
    """The same decoder on two threads over bytes in memory: no reading, no order, no batch."""
    import tensorflow as tf

    table = dataset.table("train")
    ordinals = np.arange(min(len(table), 1024))
    images = [tf.constant(record.image) for record in dataset.reader("train").read_many(ordinals)]
    keys = keys_at(0, 0, ordinals)
    cut = [tf.constant(row) for row in windows(table.height[ordinals], table.width[ordinals], keys, AUGMENT)]
    flipped = [tf.constant(flip) for flip in flips(keys, AUGMENT)]

    @tf.function(
        input_signature=[
            tf.TensorSpec([], tf.string), tf.TensorSpec([4], tf.int32), tf.TensorSpec([], tf.bool)
        ]
    )  # fmt: skip
    def decode(image: Any, window: Any, flip: Any) -> Any:
        pixels = tf.io.decode_and_crop_jpeg(image, window, channels=3)
        pixels = tf.cast(tf.image.resize(pixels, [SIZE, SIZE]), tf.uint8)
        return tf.cond(flip, lambda: tf.reverse(pixels, [1]), lambda: pixels)

    return lambda seconds: on_threads(
        lambda number: decode(images[number], cut[number], flipped[number]), len(images), seconds
    )


def on_threads(work: Callable[[int], None], size: int, seconds: float) -> float:
    """Calls per second of ``work(0 … size - 1)``, over and over on THREADS threads."""
    done = [0] * THREADS
    end = time.perf_counter() + seconds

    def loop(thread: int) -> None:
        while time.perf_counter() < end:
            work((done[thread] * THREADS + thread) % size)
            done[thread] += 1

    threads = [threading.Thread(target=loop, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / seconds


def tutorial(dataset: Dataset) -> Callable[[float], float]:
    """The pipeline of the guides, over the same shards."""
    import tensorflow as tf

    version = dataset.version
    paths = [str(version.storage.local_path(shard.path)) for shard in version.shards("train")]
    compression = "GZIP" if version.manifest.container == "gzip" else ""
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    whole = tf.constant([0.0, 0.0, 1.0, 1.0], shape=[1, 1, 4])

    def example(serialized: Any) -> Any:
        parsed = tf.io.parse_single_example(serialized, features)
        image = tf.io.decode_jpeg(parsed["image"], channels=3)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.shape(image), whole, area_range=AUGMENT.scale, aspect_ratio_range=AUGMENT.ratio
        )
        image = tf.image.resize(tf.slice(image, begin, size), [SIZE, SIZE])
        image = tf.image.random_flip_left_right(image)
        return tf.cast(tf.ensure_shape(image, [SIZE, SIZE, 3]), tf.uint8), parsed["label"]

    read = tf.data.TFRecordDataset(paths, compression).shuffle(1000).repeat().map(example)
    return lambda seconds: batches_of(read.batch(BATCH, drop_remainder=True), seconds)


def make_dataset(root: Path, count: int = 512) -> Dataset:
    """Pictures of 256 × 341 pixels that are about as hard to decode as photographs."""
    chance = np.random.default_rng(0)
    pictures = []
    for number in range(count):
        noise = chance.integers(0, 256, (256, 341, 3), dtype=np.uint8)
        smooth = cv2.GaussianBlur(noise, (0, 0), 1.2)
        picture = cv2.convertScaleAbs(smooth, alpha=2.2, beta=-150.0)
        pictures.append(Picture("train", f"class {number % 10}", picture))
    return Dataset(publish(root, pictures, name="made", shards_per_split=4, quality=90))


if __name__ == "__main__":
    main()
