"""Compare the cost of a step of two ranks with the same step of one device, on the cores of one machine.

    python -m tests.benchmarks.train.ranks [--model NAME] [--image-size 64] [--steps 40] [--rounds 3]

Each row is whole trainings of one epoch and of three, which take turns with those of the other rows. The CPU
time of all their processes differs by that of the steps of two epochs: start, tracing and end cancel out.
CPU time also counts threads that wait in a loop, and does not depend on what else the machine does.

* *CPU a step*: milliseconds, the median of the rounds.
* *÷ one device*: the median of the ratios within a round.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.samples.datasets.published import coloured, publish

PLACES = {
    "one device": ["--devices", "cpu:1"],
    "two devices of a process": ["--devices", "cpu:2"],
    "two ranks": ["--devices", "cpu:2", "--workers", "2"],
}
BATCH = 64


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="compact_resnet")
    parser.add_argument("--image-size", type=int, default=64, help="pixels a side")
    parser.add_argument("--steps", type=int, default=40, help="steps an epoch")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    steps: dict[str, list[float]] = {place: [] for place in PLACES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        counts = {"train": {"a": args.steps * BATCH // 2, "b": args.steps * BATCH // 2}}
        publish(folder / "datasets", coloured(counts, size=(args.image_size, args.image_size)), name="set")
        for number in range(args.rounds):
            for place, found in steps.items():
                one, three = (
                    cpu_seconds(folder, args.model, args.image_size, place, epochs, number)
                    for epochs in (1, 3)
                )
                found.append((three - one) / (2 * args.steps))
    print("| | CPU a step | ÷ one device |\n|---|---|---|")
    for place, found in steps.items():
        ratios = [own / alone for own, alone in zip(found, steps["one device"], strict=True)]
        print(f"| {place} | {statistics.median(found) * 1e3:.0f} | {statistics.median(ratios):.2f} |")


def cpu_seconds(folder: Path, model: str, image_size: int, place: str, epochs: int, seed: int) -> float:
    """Train, and return the CPU time of all processes (seconds)."""
    settings = {
        "model.name": model, "data.image_size": image_size, "data.global_batch_size": BATCH,
        "data.seed": seed, "run.epochs": epochs, "run.log_pictures": "false",
    }  # fmt: skip
    runs = folder / f"{place}-{epochs}-{seed}".replace(" ", "-")
    argv = [sys.executable, "-m", "shardmill.training.train", "set", "--root", str(folder / "datasets")]
    argv += ["--runs", str(runs), *PLACES[place]]
    argv += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


if __name__ == "__main__":
    main()
