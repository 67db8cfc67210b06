"""Run the demonstration: ``python -m shardmill.flows.demo [--source FOLDER] [--out FOLDER]``."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from shardmill.flows.demo.account import Outcome, print_account
from shardmill.flows.demo.images import write_digits
from shardmill.flows.server import up
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import NotFoundError, ShardmillError
from shardmill.infra.processes.job_command import python_module
from shardmill.infra.processes.ports import free_port

ACCURACY_EXPECTED = 0.95

# Small images, few shards and a small model, so that the demo takes about a minute.
DIGITS_CONFIG = """\
# What `make demo` runs with. Every key is described in docs/configuration.md.

[prepare]
failure_budget = 0.01        # more broken images than this share, and nothing is published
image.size = 64
splits = { train = 0.65, validation = 0.15, test = 0.2 }
shards.num_shards = 4

[train]
model.name = "small_cnn"
data = { image_size = 48, global_batch_size = 64, balance = "uniform" }
augment = { horizontal_flip = false, scale = [0.7, 1.0], ratio = [0.85, 1.18] }
optimizer = { learning_rate = 0.002 }
run = { epochs = 10, fresh = true, deterministic = true }
"""

OWN_CONFIG = """\
# What `make demo SOURCE=...` runs with: a small model, to see the whole way once.
# Every key is described in docs/configuration.md.

[prepare]
image.size = 160

[train]
model.name = "small_cnn"
data = { image_size = 128, global_batch_size = 64, balance = "uniform" }
run = { epochs = 5, fresh = true }
"""


def main() -> int:
    """Run the demonstration and return the exit status."""
    arguments = _arguments()
    console = Console(highlight=False)
    try:
        return _run(arguments.source, arguments.out, console)
    except ShardmillError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.remedy:
            print(f"remedy: {error.remedy}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m shardmill.flows.demo",
        description="Make a small folder of images (or use yours), prepare it, train, print the results.",
    )
    parser.add_argument("--source", type=Path, help="a folder of your own: SOURCE/class/image files")
    parser.add_argument(
        "--out", type=Path, default=Path("demo"), help="where everything goes (default: demo)"
    )
    return parser.parse_args()


def _run(source: Path | None, out: Path, console: Console) -> int:
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    if source is None:
        name, source, config = "digits", out / "images", out / "digits.toml"
        planted = write_digits(source)
        console.print(
            f"[bold]Made {source}[/]: {planted.num_files:,} files of handwritten digits in 10 uneven "
            f"classes. Among them, as in real folders, {planted.num_duplicates} duplicates (one under a "
            f"wrong label), {planted.num_broken} broken images and {planted.num_other} files that are none."
        )
        config.write_text(DIGITS_CONFIG, encoding="utf-8")
    elif source.is_dir():
        name = _dataset_name(source)
        config = out / f"{name}.toml"
        if not config.exists():  # it is the user's to edit
            config.write_text(OWN_CONFIG, encoding="utf-8")
    else:
        raise NotFoundError(
            f"no such folder: {source}", "give a folder with a folder of images for each class"
        )
    root, runs, platform = out / "datasets", out / "runs", out / "platform"
    command = ["run", str(source), "--dataset", name, "--root", str(root), "--runs", str(runs)]
    command += ["--config", str(config)]
    with _platform(root, runs, platform, console):
        console.print(f"\n[dim]$[/] [bold]shardmill {' '.join(command)}[/]\n")
        sys.stdout.flush()
        result = _shardmill(command)
    version = Catalog(root).open(name)
    seconds = time.monotonic() - started
    outcome = Outcome(version, result["train"], root, runs, platform, _commands_folder(), seconds)
    print_account(console, outcome)
    accuracy = outcome.accuracy("test")
    if name == "digits" and accuracy < ACCURACY_EXPECTED:
        console.print(f"[red]The test accuracy should reach {ACCURACY_EXPECTED:.0%} here, and did not.[/]")
        return 1
    return 0


@contextlib.contextmanager
def _platform(root: Path, runs: Path, place: Path, console: Console) -> Iterator[None]:
    """Run a platform of the demonstration's own, with its history in ``place``, until the block ends.

    So the command below runs a flow of Prefect. The platform ends with this process, however it ends.
    """
    os.environ["SHARDMILL_HOME"] = str(place.resolve())
    for variable in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING"):
        os.environ.pop(variable, None)
    options = up.UpOptions(
        host="127.0.0.1",
        port=free_port(),
        root=str(root.resolve()),
        runs=str(runs.resolve()),
        page_port=free_port(),
        has_tensorboard=False,
    )
    console.print("\nStarting Prefect's server, the deployments and a worker, which takes some seconds ...")
    with up.running(options, lambda text: console.print(f"[dim]{text}[/]")):
        yield


def _shardmill(arguments: list[str]) -> dict[str, Any]:
    """Run the command as a user would, and return its ``--json`` object.

    Raises:
        SystemExit: The command failed and has printed why.
    """
    # Each line of `--json` output but the last is for people; the last is the object.
    done = subprocess.run(
        python_module("shardmill.flows.cli", *arguments, "--json"),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.returncode)
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def _dataset_name(source: Path) -> str:
    """The name of the dataset, made of the folder's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", source.resolve().name).strip("-._") or "images"


def _commands_folder() -> str:
    """The prefix with which the shell finds ``shardmill``: "" or ".venv/bin/"."""
    folder = Path(sys.executable).parent
    if str(folder) in os.environ.get("PATH", "").split(os.pathsep):
        return ""
    here = Path.cwd()
    return f"{folder.relative_to(here) if folder.is_relative_to(here) else folder}/"


if __name__ == "__main__":
    raise SystemExit(main())
