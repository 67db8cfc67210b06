"""How long training waits for its input, with images that are really read, decoded and augmented.

    python -m tests.benchmarks.train.input [SOURCE] [--model compact_resnet] [--image-size 192] [--batch 64]
        [--epochs 2] [--set KEY=VALUE ...]

Prepares the images of SOURCE (default: 1,024 drawn photographs of 500 x 400 pixels) at 256 pixels, and trains
on them as any run does: records are read from shards, decoded, cut to random windows and scaled. The first
step, which compiles, does not count.

* *wait*: the share of the steps' time in which the loop waited for a batch.
* *reading alone*: images a second of the same input with no model, on the same cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.samples.images.photos import jpeg, write

DATASET = "photos"
STORED_PIXELS = 256
_DRAWN = {"train": 1024, "validation": 64}
_CLASSES = 4


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", type=Path, nargs="?")
    parser.add_argument("--model", default="compact_resnet")
    parser.add_argument("--image-size", type=int, default=192)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of [train]")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = arguments.source or draw(folder / "source")
        prepare = [sys.executable, "-m", "shardmill.beam_jobs.prepare", str(source), "--dataset", DATASET]
        prepare += ["--root", str(folder / "datasets"), "--set", f"image.size={STORED_PIXELS}"]
        subprocess.run(prepare, check=True, stdout=subprocess.DEVNULL)
        result = train(folder, arguments)
        print("| model | training, images/s | wait | reading alone, images/s |\n|---|---|---|---|")
        print(
            f"| {arguments.model}, {arguments.image_size} pixels, batch {arguments.batch} "
            f"| {result['images_per_second']:.0f} | {result['input_wait_fraction']:.2%} "
            f"| {reading_alone(folder, arguments):.0f} |"
        )


def draw(folder: Path) -> Path:
    """Draw photographs."""
    seed = 0
    for split, count in _DRAWN.items():
        for _ in range(count):
            seed += 1
            write(folder, {f"{split}/{seed % _CLASSES}/{seed:05d}.jpg": jpeg(seed, 400, 500)})
    return folder


def train(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train, and return the result."""
    settings = [
        f"model.name={arguments.model}", f"data.image_size={arguments.image_size}",
        f"data.global_batch_size={arguments.batch}", f"run.epochs={arguments.epochs}",
        f"run.validate_every_epochs={arguments.epochs}", *arguments.set,
    ]  # fmt: skip
    argv = [sys.executable, "-m", "shardmill.training.train", DATASET, "--json", "--devices", "one"]
    argv += ["--root", str(folder / "datasets"), "--runs", str(folder / "runs")]
    argv += [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def reading_alone(folder: Path, arguments: argparse.Namespace) -> float:
    """Images a second of the train split as ``tf.data``, after the first batch."""
    from shardmill import open_dataset

    dataset = open_dataset(DATASET, root=folder / "datasets")
    batches = iter(
        dataset.tf(
            "train",
            batch_size=arguments.batch,
            image_size=arguments.image_size,
            epochs=arguments.epochs,
        )
    )
    next(batches)
    started, images = time.perf_counter(), 0
    for batch, _ in batches:
        images += int(batch.shape[0])
    return images / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
