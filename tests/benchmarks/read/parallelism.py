"""Threads, processes and the ``tf.data`` service side by side: rate, processor time and memory.

    python -m tests.benchmarks.read.parallelism [--dataset NAME[@V] --root DIR] [--seconds 5] [--rounds 3]

Each way does the same work: stored JPEGs, a random window (area 0.08 to 1) resized to 224 pixels, every
other one flipped, batches of 256 (uint8), warm. Each runs in a process of its own, in turns; medians count.
Without ``--dataset`` one of 512 pictures of 256 pixels is made.

* *threads*: the indexed pipeline of ``training``: one process, a pool of threads.
* *processes*: the same batches, made by as many processes as there are CPUs, one thread each, and handed over
  in shared memory.
* *tf.data, threads*: TensorFlow's own operations only (``TFRecordDataset``, ``decode_and_crop_jpeg``), tuned
  by ``tf.data``.
* *tf.data service*: the same graph in worker processes behind ``tf.data``'s dispatcher, batches through gRPC
  on this machine. The pipelines of ``training`` call Python for what a step needs, which a worker elsewhere
  cannot.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from shardmill import Dataset, open_dataset
from shardmill.infra.processes.process import num_cpus
from shardmill.training.config import AugmentSettings
from shardmill.training.order import TrainingOrder
from shardmill.training.reading import BatchMaker
from shardmill.training.reading.example_spec import ExampleSpec
from tests.benchmarks.measuring.process_tree import memory_of_tree
from tests.benchmarks.read.tensorflow_examples import parse, random_window, train_files

SIZE, BATCH, SLOTS_A_PROCESS = 224, 256, 2
AUGMENT = AugmentSettings(scale=(0.08, 1.0))
SHAPE = (BATCH, SIZE, SIZE, 3)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", metavar="NAME[@V]")
    parser.add_argument("--root", type=Path, default=Path("datasets"))
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        print(json.dumps(measure(args.way, open_dataset(args.dataset, args.root), args.seconds)))
        return
    with tempfile.TemporaryDirectory() as made:
        if not args.dataset:
            from tests.benchmarks.read.rate import make_dataset

            make_dataset(Path(made))
            args.dataset, args.root = "made", Path(made)
        compare(args.dataset, args.root, args.seconds, args.rounds)


def compare(name: str, root: Path, seconds: float, rounds: int) -> None:
    """Run every way in turns, each in a process of its own."""
    measured: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, results in measured.items():
            command = [sys.executable, "-m", "tests.benchmarks.read.parallelism", "--way", way]
            command += ["--dataset", name, "--root", str(root), "--seconds", str(seconds)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            results.append(json.loads(done.stdout.splitlines()[-1]))
    print(f"{num_cpus()} CPUs, random resized crop {SIZE}, flip, batch {BATCH}")
    print(f"{'':<18}{'images/s':>10}{'CPU µs an image':>17}{'memory, MiB':>13}{'first batch, s':>16}")
    for way, results in measured.items():
        rate, cpu, memory, first = (
            statistics.median(result[key] for result in results) for key in ("rate", "cpu", "memory", "first")
        )
        print(f"{way:<18}{rate:>10,.0f}{cpu:>17,.0f}{memory:>13,.0f}{first:>16.1f}")


def measure(way: str, dataset: Dataset, seconds: float) -> dict[str, float]:
    """The cost of one way of reading, in this process and its child processes."""
    started = time.perf_counter()
    with WAYS[way](dataset) as batches:
        next(batches)
        first = time.perf_counter() - started
        for _ in range(8):  # buffers are full then, and tuning has settled
            next(batches)
        cpu, begun, images = cpu_seconds(), time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            next(batches)
            images += BATCH
        elapsed = time.perf_counter() - begun
        return {
            "rate": images / elapsed,
            "cpu": (cpu_seconds() - cpu) / images * 1e6,
            "memory": memory_of_tree(os.getpid())["Pss:"] / 2**20,
            "first": first,
        }


def cpu_seconds() -> float:
    """Used so far by this process and its living descendants."""
    own = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in [own, *own.children(recursive=True)])


@contextlib.contextmanager
def threads(dataset: Dataset) -> Iterator[Iterator[Any]]:
    """The indexed pipeline."""
    from shardmill.training.tensorflow import starting
    from shardmill.training.tensorflow.data.indexed import IndexedPipeline

    starting.start()
    reader = dataset.reader("train")
    pipeline = IndexedPipeline(reader, order_of(dataset), ExampleSpec(image_size=SIZE, augment=AUGMENT))
    yield iter(pipeline.dataset(0, 1_000_000))


def order_of(dataset: Dataset) -> TrainingOrder:
    """Of all ways that have one."""
    return TrainingOrder(dataset.table("train").label, seed=0, global_batch_size=BATCH)


@contextlib.contextmanager
def processes(dataset: Dataset) -> Iterator[Iterator[Any]]:
    """Process w of W makes the steps w, w + W, ..., into slots of shared memory that go back when read."""
    count, context = num_cpus(), multiprocessing.get_context("fork")
    memory = mmap.mmap(-1, count * SLOTS_A_PROCESS * int(np.prod(SHAPE)))
    slots = np.frombuffer(memory, np.uint8).reshape(count, SLOTS_A_PROCESS, *SHAPE)
    full = [context.Queue() for _ in range(count)]
    free = [context.Semaphore(SLOTS_A_PROCESS) for _ in range(count)]

    def work(worker: int) -> None:
        reader, order = dataset.reader("train"), order_of(dataset)
        maker = BatchMaker(reader, image_size=SIZE, augment=AUGMENT, threads=1)
        for number in range(1_000_000):
            batch = maker.make(order.step(*divmod(worker + number * count, order.steps_per_epoch)))
            free[worker].acquire()
            slots[worker, number % SLOTS_A_PROCESS] = batch.images
            full[worker].put((batch.labels, batch.weights))

    def read() -> Iterator[Any]:
        for step in range(1_000_000):
            worker, number = step % count, step // count
            labels, weights = full[worker].get()
            yield slots[worker, number % SLOTS_A_PROCESS], labels, weights
            free[worker].release()

    workers = [context.Process(target=work, args=(worker,), daemon=True) for worker in range(count)]
    for worker in workers:
        worker.start()
    yield read()
    for worker in workers:
        worker.kill()
        worker.join()


def stock_graph(dataset: Dataset) -> Any:
    """A pipeline of nothing but TensorFlow's operations, up to the batch."""
    import tensorflow as tf

    paths, compression = train_files(dataset)

    def example(serialized: Any) -> Any:
        parsed = parse(serialized)
        begin, size = random_window(tf.image.extract_jpeg_shape(parsed["image"]), AUGMENT)
        window = tf.concat([begin[:2], size[:2]], 0)
        image = tf.io.decode_and_crop_jpeg(parsed["image"], window, channels=3)
        image = tf.image.random_flip_left_right(tf.image.resize(image, [SIZE, SIZE]))
        return tf.cast(tf.ensure_shape(image, [SIZE, SIZE, 3]), tf.uint8), parsed["label"]

    files = tf.data.Dataset.from_tensor_slices(paths)
    serialized = files.interleave(
        lambda path: tf.data.TFRecordDataset(path, compression), num_parallel_calls=tf.data.AUTOTUNE
    )
    examples = serialized.shuffle(1000).repeat().map(example, num_parallel_calls=tf.data.AUTOTUNE)
    return examples.batch(BATCH, drop_remainder=True)


@contextlib.contextmanager
def stock(dataset: Dataset) -> Iterator[Iterator[Any]]:
    """TensorFlow's operations in this process."""
    from shardmill.training.tensorflow import starting

    starting.start()
    import tensorflow as tf

    yield iter(stock_graph(dataset).prefetch(tf.data.AUTOTUNE))


_WORKER = """
import sys
from shardmill.training.tensorflow import starting
starting.start()
import tensorflow as tf
service = tf.data.experimental.service
server = service.WorkerServer(service.WorkerConfig(dispatcher_address=sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def service(dataset: Dataset) -> Iterator[Iterator[Any]]:
    """The same graph in a worker process for each CPU."""
    from shardmill.training.tensorflow import starting

    starting.start()
    import tensorflow as tf

    dispatcher = tf.data.experimental.service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    workers = [subprocess.Popen([sys.executable, "-c", _WORKER, address], **pipes) for _ in range(num_cpus())]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    distribute = tf.data.experimental.service.distribute
    batches = stock_graph(dataset).apply(
        distribute(processing_mode="parallel_epochs", service=dispatcher.target, compression=None)
    )
    yield iter(batches.prefetch(tf.data.AUTOTUNE))
    for worker in workers:
        worker.kill()
        worker.wait()


Way = Callable[[Dataset], contextlib.AbstractContextManager[Iterator[Any]]]
WAYS: dict[str, Way] = {
    "threads": threads,
    "processes": processes,
    "tf.data, threads": stock,
    "tf.data service": service,
}


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # servers and iterators of TensorFlow need not be taken down one by one
