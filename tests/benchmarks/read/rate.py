"""Images per second of Shardmill's pipelines beside the limits of their decoders and the tutorial pipeline.

    python -m tests.benchmarks.read.rate [--dataset NAME[@V] --root DIR] [--seconds 5] [--rounds 5]

All of them decode the same stored JPEGs, cut a random window (area 0.08 to 1), resize it to 224 pixels, flip
every other one and make batches of 256 (uint8), warm, in one process. They take turns, round by round, so
that what else the machine does falls on all alike; medians count, of ratios those within a round. Without
``--dataset`` one of 512 pictures of 256 pixels is made.

* *limit, turbo* and *limit, TensorFlow*: the decoder alone in a tight loop on two threads, over bytes in
  memory: no reading, no order, no batches. TensorFlow's are ``tf.io.decode_and_crop_jpeg`` and
  ``tf.image.resize``, in a loop within a graph.
* *indexed*, *numpy batches*, *streaming*: shards at rest -> the pipelines of ``training``.
* *tutorial*: what guides teach: ``TFRecordDataset``, shuffle, one ``map`` that decodes the whole image,
  crops, resizes and flips, ``batch``; nothing parallel, no prefetch.

Below the table: the time that an image takes under Python's lock, which bounds how many cores one process can
use. The calls that release the lock do not count: reading, inflating, decoding and resizing. Then the same
batches with a decoder that does nothing, by 1 to 16 threads: batches a second, and the processor time of an
image, which is that under the lock and what handing it over costs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import cv2
import numpy as np
import simplejpeg

from shardmill import Dataset, open_dataset
from shardmill.training.augment.parameters import augment_image, draw_parameters
from shardmill.training.config import AugmentSettings
from shardmill.training.config.reading import Decoder, ReadingSettings
from shardmill.training.order import Passes, TrainingOrder
from shardmill.training.reading import BatchMaker, batch_maker, decode, shard_reader
from shardmill.training.reading.batch_maker import NumpyBatches
from shardmill.training.reading.decode import decode_window
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.tensorflow import starting
from tests.benchmarks.measuring.history import note
from tests.benchmarks.read.tensorflow_examples import parse, random_window, train_files
from tests.samples.datasets.published import Picture, publish
from tests.samples.training.drawn import drawn_for_images

SIZE, BATCH, THREADS = 224, 256, 2
IN_GRAPH = 64  # images a call of TensorFlow's limit
AUGMENT = AugmentSettings(scale=(0.08, 1.0))
TURBO, TENSORFLOW, TUTORIAL = "limit, turbo", "limit, TensorFlow", "tutorial"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", metavar="NAME[@V]")
    parser.add_argument("--root", type=Path, default=Path("datasets"))
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    starting.start()
    with tempfile.TemporaryDirectory() as made:
        dataset = open_dataset(args.dataset, args.root) if args.dataset else make_dataset(Path(made))
        measure(dataset, args.seconds, args.rounds)


Way = Callable[[float], float]  # seconds to measure -> images per second


def measure(dataset: Dataset, seconds: float, rounds: int) -> None:
    """Print the table of all ways to read the train split, and the time under Python's lock."""
    ways = {
        TURBO: turbo_limit(dataset),
        "indexed": indexed(dataset, "turbo"),
        "numpy batches": numpy_batches(dataset),
        TENSORFLOW: tensorflow_limit(dataset),
        "indexed, TensorFlow's decoder": indexed(dataset, "tensorflow"),
        "streaming": streaming(dataset),
        TUTORIAL: tutorial(dataset),
    }
    for way in ways.values():
        way(seconds / 2)  # warm: files in the page cache, graphs traced, autotuning settled
    rates: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            used = time.process_time()
            begun = time.perf_counter()
            rates[name].append(way(seconds))
            images = rates[name][-1] * (time.perf_counter() - begun)
            cpu[name].append((time.process_time() - used) / images * 1e6)
    container = dataset.version.manifest.container
    print(f"{dataset.version.ref}, container {container}: random resized crop {SIZE}, flip, batch {BATCH}")
    print(f"{'':<32}{'images/s':>10}{'CPU µs':>9}{'of its limit':>14}{'× tutorial':>12}")
    bound = TURBO
    for name in ways:
        bound = name if name in (TURBO, TENSORFLOW) else bound
        share, times = (ratio(rates[name], rates[other]) for other in (bound, TUTORIAL))
        figures = f"{statistics.median(rates[name]):>10,.0f}{statistics.median(cpu[name]):>9,.0f}"
        if name != bound:
            note(f"read, {name}, of its limit", share)
        print(f"{name:<32}{figures}{share:>14.2f}{times:>12.2f}")
    print(f"under Python's lock, of batches: {locked_microseconds(dataset):.1f} µs an image")
    print(f"\n{'threads, empty decoder':<32}{'batches/s':>10}{'CPU µs':>9}")
    for threads in (1, 2, 4, 8, 16):
        batches, used = without_decoding(dataset, threads, seconds)
        print(f"{threads:<32}{batches:>10,.1f}{used:>9,.1f}")


def ratio(ours: list[float], others: list[float]) -> float:
    """Median of the ratios within rounds."""
    return statistics.median(one / other for one, other in zip(ours, others, strict=True))


def batches_of(dataset: Any, seconds: float) -> float:
    """Images per second of a ``tf.data`` pipeline; the first batches fill its buffers and do not count."""
    batches = iter(dataset)
    for _ in range(4):
        next(batches)
    started, images = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        next(batches)
        images += BATCH
    return images / (time.perf_counter() - started)


def order_of(dataset: Dataset) -> TrainingOrder:
    """Of the train split; whole batches only."""
    labels = dataset.table("train").label
    return TrainingOrder(labels, seed=0, global_batch_size=BATCH, last_batch="drop")


def indexed(dataset: Dataset, decoder: Decoder) -> Way:
    """The exact order."""
    from shardmill.training.tensorflow.data.indexed import IndexedPipeline

    spec = ExampleSpec(image_size=SIZE, augment=AUGMENT, reading=ReadingSettings(decoder=decoder))
    pipeline = IndexedPipeline(dataset.reader("train"), order_of(dataset), spec)
    endless = pipeline.dataset(0, 1_000_000)
    return lambda seconds: batches_of(endless, seconds)


def numpy_batches(dataset: Dataset) -> Way:
    """Without TensorFlow."""
    maker = BatchMaker(dataset.reader("train"), image_size=SIZE, augment=AUGMENT)
    endless = NumpyBatches(maker, order_of(dataset), Passes(range(1_000_000)))
    return lambda seconds: batches_of(endless, seconds)


def streaming(dataset: Dataset) -> Way:
    """Shards from front to back, decoded by TensorFlow."""
    from shardmill.training.tensorflow.data.opening import open_stream, stream_plan

    reader = dataset.reader("train")
    plan = stream_plan(reader, BATCH, last_batch="drop")
    pipeline = open_stream(reader, plan, ExampleSpec(image_size=SIZE, augment=AUGMENT))
    endless = pipeline.dataset(0, 1_000_000)
    return lambda seconds: batches_of(endless, seconds)


def turbo_limit(dataset: Dataset) -> Way:
    """The decoding of the indexed pipeline alone."""
    records, order = dataset.reader("train"), order_of(dataset)
    maker = BatchMaker(records, image_size=SIZE, augment=AUGMENT)
    plan = order.step(0, 0)
    images = [(record.image, record.shape) for record in records.read_many(plan.ordinals)]
    draws = maker.parameters(plan)
    cut = [tuple(window) for window in draws.windows.tolist()]
    outs = [np.empty((SIZE, SIZE, 3), np.uint8) for _ in range(THREADS)]

    def decode(number: int, thread: int) -> None:
        image, shape = images[number]
        mirrored = draws.mirrors(number)
        decode_window(image, records.image_encoding, shape, cut[number], outs[thread], mirrored)
        augment_image(outs[thread], draws, number, mirrored)

    return lambda seconds: on_threads(decode, len(images), seconds)


def locked_microseconds(dataset: Dataset) -> float:
    """Return the microseconds of an image in ``BatchMaker.make`` under Python's lock.

    The time of the calls that release the lock (read, inflate, decode, resize, mirror) is subtracted.
    """
    maker = BatchMaker(dataset.reader("train"), image_size=SIZE, augment=AUGMENT, threads=1)
    order = order_of(dataset)
    unlocked = 0.0

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal unlocked
            begun = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                unlocked += time.thread_time() - begun

        return call

    calls = [(os, "pread"), (simplejpeg, "decode_jpeg"), (cv2, "resize"), (cv2, "flip")]
    if dataset.version.manifest.container == "gzip":
        calls.append((shard_reader, "unpack_record"))  # inflates, and checks for a few microseconds
    best = float("inf")
    with contextlib.ExitStack() as patches:
        for owner, name in (*calls, (decode, "area_average"), (decode, "resize_bilinear")):
            patches.enter_context(mock.patch.object(owner, name, timed(getattr(owner, name))))
        for step in range(8 * order.steps_per_epoch):
            unlocked, begun = 0.0, time.thread_time()
            maker.make(order.step(*divmod(step, order.steps_per_epoch)))
            best = min(best, (time.thread_time() - begun - unlocked) / BATCH * 1e6)
    return best


def without_decoding(dataset: Dataset, threads: int, seconds: float) -> tuple[float, float]:
    """Return batches a second and the microseconds of processor time of an image, if none is decoded."""
    maker = BatchMaker(dataset.reader("train"), image_size=SIZE, augment=AUGMENT, threads=threads)
    batches = iter(NumpyBatches(maker, order_of(dataset), Passes(range(1_000_000))))
    with mock.patch.object(batch_maker, "decode_window", _decode_nothing):
        for _ in range(2 * threads):
            next(batches)
        begun, used, made = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - begun < seconds:
            next(batches)
            made += 1
        used = time.process_time() - used
    maker.close()
    return made / (time.perf_counter() - begun), used / made / BATCH * 1e6


def _decode_nothing(*_: object) -> None: ...


def tensorflow_limit(dataset: Dataset) -> Way:
    """TensorFlow's decoder and resize, and nothing else, in a loop without Python."""
    import tensorflow as tf

    table = dataset.table("train")
    ordinals = np.arange(min(len(table), 1024) // IN_GRAPH * IN_GRAPH)
    images = tf.constant([record.image for record in dataset.reader("train").read_many(ordinals)])
    sides = table.height[ordinals], table.width[ordinals]
    parameters = draw_parameters(AUGMENT, 0, 0, ordinals, *sides, SIZE)
    cut, flipped = tf.constant(parameters.windows), tf.constant(drawn_for_images(parameters).left_right)

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def decode(start: Any) -> Any:
        used = tf.constant(0, tf.int32)  # something of each image, so that none is left out
        for number in tf.range(start, start + IN_GRAPH):
            pixels = tf.io.decode_and_crop_jpeg(images[number], cut[number], channels=3)
            pixels = tf.cast(tf.image.resize(pixels, [SIZE, SIZE]), tf.uint8)
            pixels = tf.cond(
                flipped[number], lambda seen=pixels: tf.reverse(seen, [1]), lambda seen=pixels: seen
            )
            used += tf.cast(pixels[0, 0, 0], tf.int32)
        return used

    parts = len(ordinals) // IN_GRAPH
    return lambda seconds: (
        IN_GRAPH * on_threads(lambda number, _: decode(tf.constant(number * IN_GRAPH)), parts, seconds)
    )


def on_threads(work: Callable[[int, int], None], size: int, seconds: float) -> float:
    """Calls per second of ``work(0 … size - 1, thread)``, over and over on THREADS threads."""
    done = [0] * THREADS
    end = time.perf_counter() + seconds

    def loop(thread: int) -> None:
        while time.perf_counter() < end:
            work((done[thread] * THREADS + thread) % size, thread)
            done[thread] += 1

    threads = [threading.Thread(target=loop, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / seconds


def tutorial(dataset: Dataset) -> Way:
    """The pipeline of the guides, over the same shards."""
    import tensorflow as tf

    paths, compression = train_files(dataset)

    def example(serialized: Any) -> Any:
        parsed = parse(serialized)
        image = tf.io.decode_jpeg(parsed["image"], channels=3)
        begin, size = random_window(tf.shape(image), AUGMENT)
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
