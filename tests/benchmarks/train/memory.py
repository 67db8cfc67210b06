"""Memory and speed of training steps by batch size.

    python -m tests.benchmarks.train.memory [--model compact_resnet] [--image-size 96]
        [--batches 32 64 128 256] [--precision off] [--optimizer AdamW] [--rematerialize]

Each row is a process of its own that trains a model on one batch of random images, which lies in memory, so
that no reading counts. *before* is the resident memory with TensorFlow and the built model, *steps* what
training steps add at most, *an image* the part of it of each further image of a batch. On a GPU these are
TensorFlow's own figures for the device. *CPU* is the processor time an image, which counts where the machine
does other things too.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from functools import partial
from typing import Any

MIB = 1 << 20
STEPS = 4


def measure(arguments: argparse.Namespace, batch_size: int) -> dict[str, float]:
    """Train a few steps in this process: bytes and seconds."""
    from shardmill.training.tensorflow import starting

    starting.start(seed=0)
    import keras
    import tensorflow as tf

    from shardmill.infra.processes.process import own_peak_rss_bytes
    from shardmill.training.models import ModelSpec, resolve_name
    from shardmill.training.tensorflow.framework import peak_device_bytes
    from shardmill.training.tensorflow.models import build_model
    from shardmill.training.tensorflow.models.rematerialization import rematerialize

    keras.config.set_dtype_policy(
        "float32" if arguments.precision == "off" else f"mixed_{arguments.precision}"
    )
    model = build_model(ModelSpec(resolve_name(arguments.model), 10, arguments.image_size))
    optimizer = getattr(keras.optimizers, arguments.optimizer)(1e-3)
    optimizer.build(model.trainable_variables)
    forward = rematerialize(model).forward if arguments.rematerialize else partial(model, training=True)
    size = arguments.image_size
    images = tf.cast(tf.random.uniform([batch_size, size, size, 3], maxval=256, dtype=tf.int32), tf.uint8)
    labels = tf.random.uniform([batch_size], maxval=10, dtype=tf.int32)

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            logits = tf.cast(forward(images), tf.float32)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def peak() -> int:
        return max(peak_device_bytes().values(), default=0) or own_peak_rss_bytes()

    before = peak()
    float(step())  # compiles
    cpu, wall = _cpu_seconds(), time.perf_counter()
    for _ in range(STEPS):
        float(step())
    count = STEPS * batch_size
    return {
        "before": before,
        "after": peak(),
        "cpu_ms": 1e3 * (_cpu_seconds() - cpu) / count,
        "rate": count / (time.perf_counter() - wall),
    }


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _mib(num_bytes: float, form: str = ".0f") -> str:
    return f"{num_bytes / MIB:{form}} MiB"


def main() -> None:
    """Measure every batch size, each in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="compact_resnet")
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 64, 128, 256])
    parser.add_argument("--precision", choices=["off", "bfloat16", "float16"], default="off")
    parser.add_argument("--optimizer", default="AdamW", help="a class of keras.optimizers")
    parser.add_argument("--rematerialize", action="store_true", help="as run.rematerialize")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments, arguments.one)))
        return
    precision = "float32" if arguments.precision == "off" else arguments.precision
    how = ", rematerialised" if arguments.rematerialize else ""
    print(f"{arguments.model}, {arguments.image_size} pixels, {precision}, {arguments.optimizer}{how}")
    print(f"{'batch':>6} {'before':>11} {'steps':>11} {'an image':>10} {'images/s':>9} {'CPU':>9}")
    last: tuple[int, float] | None = None
    for batch_size in arguments.batches:
        command = [
            sys.executable,
            "-m",
            "tests.benchmarks.train.memory",
            *sys.argv[1:],
            "--one",
            str(batch_size),
        ]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        row = json.loads(out.splitlines()[-1])
        further = "" if last is None else _mib((row["after"] - last[1]) / (batch_size - last[0]), ".2f")
        print(
            f"{batch_size:>6} {_mib(row['before']):>11} {_mib(row['after'] - row['before']):>11} "
            f"{further:>10} {row['rate']:>9.0f} {row['cpu_ms']:>6.2f} ms",
            flush=True,
        )
        last = batch_size, row["after"]


if __name__ == "__main__":
    main()
