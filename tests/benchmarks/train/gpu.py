"""Speed, scaling and memory of whole trainings on GPUs, in one process and with a process a GPU.

    python -m tests.benchmarks.train.gpu [--framework tensorflow] [--model ResNet50] [--image-size 224]
        [--batch 128] [--precision off] [--collectives auto] [--xla] [--steps 60] [--cpu N]

With PyTorch a process drives one device, so there are no rows of several devices in one process. XLA
(``run.jit_compile``) works on one device, so ``--xla`` measures only that one. ``--collectives nccl`` and
``ring`` decide how the processes of a row sum gradients.

Each row is a training of its own on pictures that are read, decoded and augmented as in any run. *images/s*
is the rate of the steps after the first, *input wait* the share of that time in which the loop waited for a
batch, *scaling* the rate beside that of one device times their number, and *peak memory* the most that
TensorFlow used of the first device (on CPUs the resident memory of all processes). ``--batch`` counts the
images of a device, so the global batch grows with the devices. Without a GPU it says so and measures nothing;
``--cpu N`` measures N parts of the CPU instead, which shows only that the benchmark works.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardmill.training.ranks.devices import visible_gpus
from tests.samples.datasets.published import coloured, publish

MIB = 1 << 20
CLASSES = "abcdefghij"


@dataclass(frozen=True, slots=True)
class Case:
    """Devices of one training.

    Attributes:
        num_devices: their number.
        by_ranks: one process per device; else all in one process.
    """

    num_devices: int
    by_ranks: bool


@dataclass(frozen=True, slots=True)
class Row:
    """The measurements of a case."""

    case: Case
    images_per_second: float
    input_wait: float
    peak_bytes: int


def cases(num_devices: int, *, framework: str = "tensorflow", xla: bool = False) -> Iterator[Case]:
    """One device, then two, four and so on up to all, each in one process and by ranks."""
    yield Case(1, by_ranks=False)
    if xla:
        return
    counts = {1 << power for power in range(1, num_devices.bit_length())} | {num_devices}
    for count in sorted(counts):
        if 1 < count <= num_devices:
            if framework == "tensorflow":
                yield Case(count, by_ranks=False)
            yield Case(count, by_ranks=True)


def lines(rows: list[Row]) -> list[str]:
    """The table; the first row is the one that the others are compared with."""
    found = [f"{'devices':<22} {'images/s':>9} {'input wait':>11} {'scaling':>8} {'peak memory':>12}"]
    for row in rows:
        count = row.case.num_devices
        name = f"{count} in {f'{count} processes' if row.case.by_ranks else 'one process'}"
        scaling = row.images_per_second / (count * rows[0].images_per_second)
        found.append(
            f"{name:<22} {row.images_per_second:>9.0f} {row.input_wait:>11.1%} {scaling:>8.0%} "
            f"{row.peak_bytes / MIB:>8.0f} MiB"
        )
    return found


def train(root: Path, case: Case, arguments: argparse.Namespace, num_pictures: int) -> Row:
    """Train once and return what the result says."""
    batch = arguments.batch * case.num_devices
    steps_per_epoch = -(-num_pictures // batch)
    devices = f"cpu:{case.num_devices}" if arguments.cpu else str(case.num_devices)
    config: dict[str, Any] = {
        "model": {"name": arguments.model, "weights": None},
        "data": {"image_size": arguments.image_size, "global_batch_size": batch},
        "run": {
            "epochs": -(-arguments.steps // steps_per_epoch),
            "devices": devices,
            "mixed_precision": arguments.precision,
            "framework": arguments.framework,
            "jit_compile": arguments.xla,
            "fresh": True,
        },
        "ranks": {
            "workers": str(case.num_devices) if case.by_ranks else None,
            "collectives": arguments.collectives,
        },
    }
    command = [
        sys.executable,
        "-m",
        "shardmill.training.train",
        "pictures",
        "--json",
        "--root",
        str(root / "datasets"),
    ]
    command += ["--runs", str(root / "runs"), "--config-json", json.dumps(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    result = json.loads(done.stdout.splitlines()[-1])
    peak = max(result["device_peak_bytes"].values(), default=result["peak_rss_bytes"])
    return Row(case, result["images_per_second"], result["input_wait_fraction"], peak)


def main() -> None:
    """Measure every case and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--framework", choices=["tensorflow", "torch"], default="tensorflow")
    parser.add_argument("--model", default="ResNet50")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=128, help="images of a step on each device")
    parser.add_argument("--precision", choices=["off", "bfloat16", "float16"], default="off")
    parser.add_argument("--collectives", choices=["auto", "nccl", "ring"], default="auto")
    parser.add_argument("--xla", action="store_true", help="compile the step; TensorFlow, one device")
    parser.add_argument("--steps", type=int, default=60, help="at least so many steps")
    parser.add_argument("--pictures", type=int, default=2048)
    parser.add_argument("--cpu", type=int, metavar="N", help="N parts of the CPU instead of GPUs")
    arguments = parser.parse_args()
    if arguments.xla and arguments.framework != "tensorflow":
        parser.error("--xla needs --framework tensorflow")
    num_devices = arguments.cpu or len(visible_gpus())
    if not num_devices:
        print("no GPU on this machine: nothing was measured (--cpu N measures N parts of the CPU)")
        return
    counts = {name: arguments.pictures // len(CLASSES) for name in CLASSES}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        publish(root / "datasets", coloured({"train": counts}, size=(256, 256)), name="pictures")
        print(
            f"{arguments.framework}, {arguments.model}, {arguments.image_size} pixels,"
            f" {arguments.batch} images a device, {arguments.precision}"
        )
        rows = []
        for case in cases(num_devices, framework=arguments.framework, xla=arguments.xla):
            rows.append(train(root, case, arguments, sum(counts.values())))
            print(lines(rows)[-1] if len(rows) > 1 else "\n".join(lines(rows)), flush=True)


if __name__ == "__main__":
    main()
