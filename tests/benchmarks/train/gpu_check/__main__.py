"""Check on a bare machine with a GPU how fast reading and training are, in a few minutes without network.

On a machine with the development environment and a network:

    python -m tests.benchmarks.train.gpu_check --make FOLDER [--photographs DIR] [--images 800]

makes a dataset and the wheels that the other machine lacks. On the machine with the GPU, in this repository:

    python -m tests.benchmarks.train.gpu_check --bundle FOLDER [--out FOLDER] [--minutes 8] [--cpus 8]

Each part runs in a process of its own with a limit of its own, and prints its rows as they come; one that
fails or hangs costs itself. The whole ends within ``--minutes``. ``--out`` gets the table as Markdown and as
JSON after each part. ``--device cpu`` tries everything with small sizes. Needed on the machine: PyTorch,
torchvision, JAX, OpenCV, pyarrow, Pillow, psutil, rich and typer; the rest comes from the wheels, which are
unpacked into a temporary folder.

*ratio* is the rate beside the row that it names. *input wait* is the mean time of a step in which the loop
waited for its batch, while the device still works on the step before. *GPU GB* is the most that the framework
took, *host GB* the memory of the process and its workers at the end. Real data are random windows of 224
pixels, mirrored, decoded by ``--cpus`` cores; the decoder alone has as many.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

import psutil

from tests.benchmarks.train.gpu_check.bundle import DATASET, REPOSITORY, install, make
from tests.benchmarks.train.gpu_check.rows import INTO_DEVICE, LIMIT, Row, markdown

# Part -> where its function is, and its share of the time.
PARTS = {
    "read": ("reading.read", 0.07),
    "torch": ("reading.torch_into_device", 0.08),
    "resnet": ("training.resnet", 0.25),
    "decode": ("reading.decode_on_device", 0.1),
    "jax": ("reading.jax_into_device", 0.08),
    "compiled": ("training.compiled_resnet", 0.2),
    "ranks": ("ranks.killed_and_resumed", 0.2),
}
_RESERVE = 0.02  # of the time, to end parts and print
_SHOWN = ("torch", "torchvision", "jax", "numpy", "opencv-python-headless", "pyarrow", "simplejpeg")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--make", type=Path, metavar="FOLDER", help="make the bundle in this folder")
    parser.add_argument("--photographs", type=Path, help="a folder of photographs (default: made up)")
    parser.add_argument("--images", type=int, default=800, help="how many the dataset has")
    parser.add_argument("--bundle", type=Path, metavar="FOLDER", help="measure with this bundle")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--minutes", type=float, default=8.0, help="time of all parts together")
    parser.add_argument("--cpus", type=int, default=8, help="at most so many cores")
    parser.add_argument("--only", help="names of parts, separated by commas: " + ", ".join(PARTS))
    parser.add_argument("--out", type=Path, help="folder for gpu-check.md and gpu-check.json")
    parser.add_argument("--part", nargs=2, metavar=("NAME", "SECONDS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.make:
        make(arguments.make, arguments.photographs, arguments.images)
        return 0
    if arguments.bundle is None:
        parser.error("give --bundle FOLDER, or --make FOLDER to make one")
    if not (arguments.bundle / "datasets" / DATASET).is_dir():
        parser.error(f"{arguments.bundle} has no dataset: make it with --make FOLDER")
    if arguments.part:
        _measure_part(arguments)
        return 0
    names = list(PARTS) if arguments.only is None else arguments.only.split(",")
    if unknown := set(names) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return _Check(arguments, names).run()


def _measure_part(arguments: argparse.Namespace) -> None:
    """Measure one part in this process, and print its rows."""
    from shardmill.infra.processes.process import exit_at_once
    from tests.benchmarks.train.gpu_check.measuring import Skipped, Told

    name, seconds = arguments.part
    module, _, function = PARTS[name][0].partition(".")
    told = Told(arguments.bundle / "datasets", arguments.device, float(seconds))
    try:
        for row in getattr(importlib.import_module(f"{__package__}.{module}"), function)(told):
            print(row.to_line(), flush=True)
    except Skipped as why:
        print(Row(name, note=f"SKIPPED: {why}").to_line(), flush=True)
    exit_at_once(0)  # libraries that hang at their end have nothing to add


class _Check:
    """All parts, one after the other."""

    def __init__(self, arguments: argparse.Namespace, names: list[str]) -> None:
        self._told = arguments
        self._names = names
        self._end = time.monotonic() + arguments.minutes * 60
        self._rows: list[Row] = []
        self._machine = ""
        self._folder: str | None = None

    def run(self) -> int:
        """Measure, and return the exit status: 1 if a part failed."""
        # A process in the kernel's hands cannot be killed, and waiting for it would last for ever.
        watchdog = threading.Timer(self._told.minutes * 60, self._give_up)
        watchdog.daemon = True
        watchdog.start()
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, allowed[: self._told.cpus])
        with tempfile.TemporaryDirectory() as folder:
            self._folder = folder
            site, scratch = Path(folder, "site"), Path(folder, "scratch")
            scratch.mkdir()
            installed = install(self._told.bundle, site)
            sys.path.insert(0, str(site))
            self._machine = self._described(len(allowed), installed)
            print(self._machine, flush=True)
            for row in self._measured(site, scratch):
                self._add(row)
        print(f"\n{markdown(self._rows)}")
        watchdog.cancel()
        return int(any(row.note.startswith("FAILED") for row in self._rows))

    def _measured(self, site: Path, scratch: Path) -> Iterator[Row]:
        from tests.benchmarks.train.gpu_check.running import run_part

        env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(REPOSITORY)))}
        # What a part leaves in its temporary folder is removed with it.
        env |= {"TMPDIR": str(scratch), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        if self._told.device == "cpu":
            # Threads of OpenMP that wait for each other on busy cores cost many times the work.
            env |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
        for number, name in enumerate(self._names):
            # What a part leaves of its time is for those after it.
            share = PARTS[name][1] / sum(PARTS[other][1] for other in self._names[number:])
            left = self._end - time.monotonic() - _RESERVE * self._told.minutes * 60
            seconds = share * max(left, 0)
            argv = [sys.executable, "-m", __package__, "--bundle", str(self._told.bundle.absolute())]
            argv += ["--device", self._told.device, "--part", name, str(seconds)]
            yield from run_part(name, argv, REPOSITORY, seconds, env)

    def _add(self, row: Row) -> None:
        """Print a row, and write the table so far."""
        limits = [found for found in self._rows if found.what == LIMIT]
        if limits and row.what.endswith(INTO_DEVICE):
            row = row.compared(limits[0])
        self._rows.append(row)
        print(row, flush=True)
        if self._told.out is None:
            return
        self._told.out.mkdir(parents=True, exist_ok=True)
        found = {"machine": self._machine, "rows": [asdict(row) for row in self._rows]}
        (self._told.out / "gpu-check.json").write_text(json.dumps(found, indent=1))
        (self._told.out / "gpu-check.md").write_text(f"{self._machine}\n\n{markdown(self._rows)}")

    def _described(self, num_cpus: int, installed: list[str]) -> str:
        """Return what the machine is and has."""
        gpu = "CPU only"
        if self._told.device == "cuda":
            query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
            try:
                gpu = subprocess.run(
                    query, capture_output=True, text=True, timeout=30, check=True
                ).stdout.strip()
            except (OSError, subprocess.SubprocessError) as error:
                gpu = f"no answer from nvidia-smi ({error})"
        present = {found.name.lower(): found.version for found in metadata.distributions()}
        versions = [f"{name} {present[name]}" for name in _SHOWN if name in present]
        used = len(os.sched_getaffinity(0))
        return (
            f"{gpu}; {used} of {num_cpus} cores; Python {platform.python_version()}; {', '.join(versions)}; "
            f"from wheels: {', '.join(installed) or 'nothing'}"
        )

    def _give_up(self) -> None:
        try:
            print(f"\n{markdown(self._rows)}\nFAILED: out of time", flush=True)
            for child in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
        finally:
            os._exit(1)


if __name__ == "__main__":
    raise SystemExit(main())
