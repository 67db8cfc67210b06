"""`shardmill demo`: it runs ``shardmill run`` under a Prefect server of its own."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from shardmill.flows.cli import options, output
from shardmill.flows.cli.demo.account import Outcome, print_account
from shardmill.flows.cli.demo.images import Planted, write_digits
from shardmill.flows.cli.demo.prefect_server import PrefectServer, prefect_server
from shardmill.flows.cli.demo.time_line import BETWEEN_JOBS, Part, TimeLine
from shardmill.flows.flow_runs.jobs import checked_source, job_request, prepare_settings, train_settings
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import EnvironmentFault, ShardmillError, UsageError
from shardmill.infra.extras import lacking
from shardmill.infra.processes.process import REPORT_DEFECT
from shardmill.infra.progress import subscribe

if TYPE_CHECKING:
    from shardmill.flows.cli.runs.flow_runs import FlowCall

ACCURACY_EXPECTED = 0.95

# Small images, few shards and a small model, so that the demo takes less than a minute.
DIGITS_CONFIG = """\
# The settings of the demo, yours to change. Every key is described in docs/configuration.md.

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
run = { epochs = 10, deterministic = true }
"""

OWN_CONFIG = """\
# The settings of the demo, yours to change: a small model, to see the whole way once.
# Every key is described in docs/configuration.md.

[prepare]
image.size = 160

[train]
model.name = "small_cnn"
data = { image_size = 128, global_batch_size = 64, balance = "uniform" }
run = { epochs = 5 }
"""

# What the demo makes in its folder, beside a file of settings. The first is there from its beginning.
_HOME = "platform"
_SETTINGS = ".toml"
_LIBRARIES = ("prefect", "apache_beam", "tensorflow")

Source = Annotated[
    str | None,
    typer.Option(
        "--source", metavar="FOLDER", help="Images of your own, one folder a class [default: digits]"
    ),
]
Out = Annotated[str, typer.Option("--out", metavar="FOLDER", help="Where everything goes")]


def demo(source: Source = None, out: Out = "demo", json_output: options.Json = False) -> None:
    """Prepare small images, train on them, and explain the results.

    It takes a minute. The images are handwritten digits, some broken or duplicated, as in real folders.

    Examples:
      shardmill demo
      shardmill demo --source photos --out demo-of-photos
    """
    times, console, folder = TimeLine(), Console(highlight=False, stderr=json_output), Path(out)
    _check_installed()
    name = "digits" if source is None else _name_of(source, folder)
    images, config = source or str(folder / "images"), folder / f"{name}{_SETTINGS}"
    root, runs, platform = folder / "datasets", folder / "runs", _begun(folder)
    with prefect_server(platform) as prefect:
        starting = times.beside("start Prefect")
        with _writing_to(folder):
            if source is None:
                times.begin("draw the images")
                _say_planted(console, images, write_digits(Path(images)))
            if not config.exists():  # it is the user's to edit
                config.write_text(OWN_CONFIG if source else DIGITS_CONFIG, encoding="utf-8")
        shown = ["shardmill", "run", images, "--dataset", name, "--root", str(root), "--runs", str(runs)]
        console.print(f"\n[dim]$[/] [bold]{shlex.join([*shown, '--config', str(config)])}[/]\n")
        sys.stdout.flush()
        times.begin(BETWEEN_JOBS)
        trained = _run(_call(images, name, root, runs, config), prefect, starting, times)
        times.begin("stop Prefect")
    times.end()
    outcome = Outcome(Catalog(root).open(name), trained, root, runs, platform, _commands_folder())
    print_account(console, outcome)
    times.print(console)
    accuracy = outcome.accuracy("test")
    console.print(f"[bold green]Done in {times.seconds:.0f} s.[/]  Test accuracy {accuracy:.1%}.")
    if trained["unchanged"]:
        console.print(f"Nothing had changed since the last time. To see all of it again, remove {out}.")
    if json_output:
        output.print_json({"train": trained, "seconds": times.to_json()})
    if source is None:
        _check_accuracy(accuracy, config)


def _check_installed() -> None:
    """Raise EnvironmentFault if a part of the package that the demo shows is not installed."""
    missing = [library for library in _LIBRARIES if find_spec(library) is None]
    if missing:
        raise lacking("the demo", missing[0], "all")


def _check_accuracy(accuracy: float, config: Path) -> None:
    """Raise ShardmillError if a model of the digits is bad although nobody has changed the settings."""
    if accuracy < ACCURACY_EXPECTED and config.read_text("utf-8") == DIGITS_CONFIG:
        raise ShardmillError(
            f"the test accuracy is {accuracy:.1%}, and should reach {ACCURACY_EXPECTED:.0%}", REPORT_DEFECT
        )


def _name_of(source: str, out: Path) -> str:
    """Return the name of the dataset, made of the folder's name.

    Raises:
        NotFoundError: there is no such folder. UsageError: the demo would write into it.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(source).resolve().name).strip("-._") or "images"
    checked_source(source, name)
    if out.resolve().is_relative_to(Path(source).resolve()):
        raise UsageError(
            f"--out {out} lies in --source {source}: what is written there would count as images",
            "name a folder beside it: --out FOLDER",
        )
    return name


def _begun(out: Path) -> Path:
    """Make the folder of the demo, and return the one for the history of Prefect in it.

    Raises:
        UsageError: there are files that no demo has made. EnvironmentFault: it cannot be written to.
    """
    home = out / _HOME
    with _writing_to(out):
        if not home.is_dir() and out.exists():
            others = [path.name for path in out.iterdir() if path.suffix != _SETTINGS]
            if others:
                raise UsageError(
                    f"--out {out} has other files already, such as {others[0]}",
                    "name a folder that is new, empty or of an earlier demo: --out FOLDER",
                )
        home.mkdir(parents=True, exist_ok=True)
    return home


@contextlib.contextmanager
def _writing_to(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        file = "" if error.filename is None else f": {error.filename}"
        raise EnvironmentFault(
            f"--out {out}{file} cannot be written: {error.strerror}",
            "make space or give rights there, or name another folder: --out FOLDER",
        ) from error


def _call(images: str, name: str, root: Path, runs: Path, config: Path) -> FlowCall:
    """Return the flow that ``shardmill run`` would run with these arguments."""
    from shardmill.flows.cli.runs.flow_runs import pipeline_call

    load = partial(prepare_settings, config, [])
    request = job_request(images, name, str(root.absolute()), load, as_is=False)
    return pipeline_call(
        request.source, name, request.root, str(runs.absolute()), request.config, train_settings(config, [])
    )


def _run(call: FlowCall, prefect: PrefectServer, starting: Part, times: TimeLine) -> Mapping[str, Any]:
    """Run the flow as soon as the server answers, and return the result of the training."""
    from shardmill.flows.cli.runs.flow_runs import run_flow

    def wait() -> None:
        prefect.wait_until_healthy()
        starting.end = time.time()

    end = subscribe(times)
    try:
        found: Mapping[str, Any] = run_flow(call, prefect.api, wait)["train"]
        return found
    finally:
        end()


def _say_planted(console: Console, folder: str, planted: Planted) -> None:
    console.print(
        f"[bold]Made {folder}[/]: {planted.num_files:,} files of handwritten digits in 10 uneven "
        f"classes. Among them, as in real folders, {planted.num_duplicates} duplicates (one under a "
        f"wrong label), {planted.num_broken} broken images and {planted.num_other} files that are none."
    )


def _commands_folder() -> str:
    """The prefix with which the shell finds ``shardmill``: "" or ".venv/bin/"."""
    folder = Path(sys.executable).parent
    if str(folder) in os.environ.get("PATH", "").split(os.pathsep):
        return ""
    here = Path.cwd()
    return f"{folder.relative_to(here) if folder.is_relative_to(here) else folder}/"
