"""Does prepare's memory stay flat? Peak resident memory on a folder and on many times as many images.

    python -m tests.benchmarks.prepare_memory FOLDER [--times 10] [--work DIR]

The larger folder holds the images of the first, and copies of them with a few bytes appended behind the end
of the image, so that no copy is an exact duplicate. Prints a table and the ratio of the peaks (of the Beam
child's process tree).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def main() -> None:
    """Run both and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, help="a folder of images, laid out for shardmill prepare")
    parser.add_argument("--times", type=int, default=10, help="how many times as many images (default 10)")
    parser.add_argument("--work", type=Path, help="folder for copies and datasets (default: a temporary one)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.work, prefix="shardmill-memory-") as work:
        larger = Path(work, "larger")
        multiply(args.source, larger, args.times)
        rows = [measure(source, Path(work, "datasets")) for source in (args.source, larger)]
    print(f"{'images':>10} {'records':>10} {'peak MiB':>10} {'images/s':>10} {'seconds':>9}")
    for row in rows:
        peak = row["peak_rss_bytes"] / (1 << 20)
        print(
            f"{row['num_inputs']:>10,} {row['num_records']:>10,} {peak:>10,.0f} "
            f"{row['images_per_second']:>10,.0f} {row['seconds']:>9.1f}"
        )
    print(
        f"peak at {args.times} times the images: {rows[1]['peak_rss_bytes'] / rows[0]['peak_rss_bytes']:.2f}"
    )


def multiply(source: Path, target: Path, times: int) -> None:
    """Copy ``source`` ``times`` times into one tree; every copy but the first has its own bytes appended."""
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        folder = target / file.relative_to(source).parent
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / file.name)
        data = file.read_bytes()
        for number in range(1, times):
            copy = folder / f"{file.stem}-{number}{file.suffix}"
            copy.write_bytes(data + f"copy {number}".encode())


def measure(source: Path, root: Path) -> dict[str, Any]:
    """The result of one ``python -m beam_jobs.prepare``."""
    command = [sys.executable, "-m", "beam_jobs.prepare", str(source), "--dataset", source.name]
    done = subprocess.run([*command, "--root", str(root), "--json"], stdout=subprocess.PIPE, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


if __name__ == "__main__":
    main()
