"""Measure the time and memory of the training order of a large dataset.

    python -m tests.benchmarks.order.scale [--records 100000000] [--only natural block ...]

Each row is measured in a process of its own, which holds one label a record (four bytes, 1,000 classes whose
sizes fall off as 1 / rank, sorted by class) and nothing else. *made* is the time until the order is there;
*epoch* the time in which one thread computes all records of an epoch in order, some at a time, by the clock
and in CPU-seconds (which count where the machine does other things too); *step* that of one step of 256 among
its neighbours. *peak* is the process's resident memory, with the interpreter, the libraries and the labels.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

from shardmill.training.order import BlockSizes, TrainingOrder
from shardmill.training.order.balance.class_weights import balanced
from shardmill.training.order.balance.rules import RULES

MIB = 1 << 20
CLASSES = 1000
BATCH = 256
AT_ONCE = 1 << 17
SHARD_RECORDS = 4_600
WAYS = ("natural", "block", "weighted", *(name for name in RULES if name != "natural"))


def labels_of(num_records: int) -> np.ndarray:
    """int32 [N], sorted."""
    shares = np.cumsum(1 / np.arange(1, CLASSES + 1))
    ends = np.rint(shares / shares[-1] * num_records).astype(np.int64)
    labels = np.empty(num_records, np.int32)
    for label, end in enumerate(ends):
        labels[ends[label - 1] if label else 0 : end] = label
    return labels


def make(way: str, labels: np.ndarray) -> TrainingOrder:
    """The order of one row."""
    if way == "block":
        shards = np.full(-(-labels.size // SHARD_RECORDS), SHARD_RECORDS)
        shards[-1] -= shards.sum() - labels.size
        return TrainingOrder(labels, seed=0, global_batch_size=BATCH, blocks=BlockSizes(), shard_sizes=shards)
    if way == "weighted":
        return TrainingOrder(labels, seed=0, global_batch_size=BATCH, class_weights=balanced)
    return TrainingOrder(labels, seed=0, global_batch_size=BATCH, balance=RULES[way])


def measure(way: str, num_records: int) -> dict[str, float]:
    """One row, in this process."""
    labels = labels_of(num_records)
    started = time.process_time()
    order = make(way, labels)
    made, made_at = time.process_time(), time.perf_counter()
    total = 0
    for start in range(0, num_records, AT_ONCE):
        positions = np.arange(start, min(start + AT_ONCE, num_records), dtype=np.int64)
        total += int(order.ordinals(1, positions).sum())
    walked, walked_at = time.process_time(), time.perf_counter()
    if way in ("natural", "block", "weighted"):
        assert total == num_records * (num_records - 1) // 2, "each record once"
    steps = min(2000, order.steps_per_epoch)
    for step in range(steps):
        order.step(2, step)
    return {
        "made": made - started,
        "epoch": walked_at - made_at,
        "epoch_cpu": walked - made,
        "step": (time.process_time() - walked) / steps,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> int:
    """Measure each row in a child, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=100_000_000)
    parser.add_argument("--only", choices=WAYS, nargs="+", default=WAYS)
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments.records)))
        return 0
    print(f"{arguments.records:,} records\n")
    print(
        "| order | made CPU-s | epoch s | epoch CPU-s | CPU-ns a record | CPU-µs a step of 256 | peak MiB |"
    )
    print("|---|---|---|---|---|---|---|")
    for way in arguments.only:
        row = _child(way, arguments.records)
        each = row["epoch_cpu"] / arguments.records * 1e9
        print(
            f"| {way} | {row['made']:.2f} | {row['epoch']:.1f} | {row['epoch_cpu']:.1f} | {each:.0f} "
            f"| {row['step'] * 1e6:.0f} | {row['peak'] / MIB:,.0f} |",
            flush=True,
        )
    return 0


def _child(way: str, num_records: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.benchmarks.order.scale", "--child", way]
    done = subprocess.run(
        [*command, "--records", str(num_records)], check=True, stdout=subprocess.PIPE, text=True
    )
    row: dict[str, Any] = json.loads(done.stdout)
    return row


if __name__ == "__main__":
    sys.exit(main())
