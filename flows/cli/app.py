"""The application behind the command `shardmill`: its commands, exit statuses and error messages.

Exit status: 0 done, 2 usage or configuration, 3 bad data, 4 environment, 5 a signature is
missing or does not hold, 130 cancelled, 141 the reader of standard output is gone (``| head``), which is not
an error. An error is two lines on standard error,
``error:`` and ``remedy:``. Only a defect shows a traceback.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from types import FrameType
from typing import Annotated

import typer

from flows.cli.datasets import catalog
from flows.cli.datasets import diff as versions
from flows.cli.datasets import maintenance as upkeep
from flows.cli.datasets.export import export
from flows.cli.datasets.report import report
from flows.cli.datasets.sign import sign
from flows.cli.datasets.verify import verify
from flows.cli.jobs import commands as jobs
from flows.cli.jobs.meanwhile import is_importing
from flows.cli.jobs.profile import profile
from flows.cli.jobs.sources import sources
from flows.cli.own_server.deploy import deploy
from flows.cli.own_server.server import server
from flows.cli.server import backup as backups
from flows.cli.server import service
from flows.cli.server.notify import notify
from flows.cli.server.page import page
from flows.cli.server.reap import reap
from flows.cli.server.schedule import schedule
from flows.cli.server.status import status
from flows.cli.server.train_when import train_when
from flows.cli.training_runs import comparing, looking, promoting, using
from flows.cli.training_runs.balance import balance
from flows.cli.training_runs.label_errors import label_errors
from infra.errors import GO_ON, ShardmillError
from infra.processes.terminal import (
    READER_GONE,
    ReaderGone,
    guard_standard_streams,
    output_flushed,
)
from infra.readable import printable

# Typer brings its own copy of click or uses the installed one, depending on its release.
_CLICK_EXCEPTION, _USAGE_ERROR = typer.BadParameter.__mro__[2], typer.BadParameter.__mro__[1]

_CANCELLED = 130
_LAYOUT = "\n\t"  # control characters that a message may contain

_EPILOG = """[bold]Examples[/bold]

  shardmill run photos --dataset photos

  shardmill prepare photos --dataset photos --dry-run

  shardmill train photos@1 --set run.epochs=20

  shardmill show photos

  shardmill up --detach
"""

app = typer.Typer(
    name="shardmill",
    help="Folders of raw images in; accounted-for, balanced, sharded TFRecords and a trained model out.",
    epilog=_EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"shardmill {version('shardmill')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version of Shardmill"
        ),
    ] = False,
) -> None:
    """Options of the command itself; each command has more."""


_WORK, _LOOK, _MODELS, _KEEP, _SERVE = "Work", "Look", "Trained models", "Keep", "Prefect"

for _command, _panel in (
    (jobs.run, _WORK),
    (jobs.prepare, _WORK),
    (jobs.import_, _WORK),
    (jobs.train, _WORK),
    (sources, _WORK),
    (catalog.datasets, _LOOK),
    (catalog.show, _LOOK),
    (report, _LOOK),
    (profile, _LOOK),
    (verify, _LOOK),
    (catalog.locate, _LOOK),
    (versions.diff, _LOOK),
    (export, _LOOK),
    (looking.runs, _MODELS),
    (comparing.compare, _MODELS),
    (balance, _MODELS),
    (promoting.promote, _MODELS),
    (promoting.aliases, _MODELS),
    (using.evaluate, _MODELS),
    (using.predict, _MODELS),
    (label_errors, _MODELS),
    (sign, _KEEP),
    (upkeep.rollback, _KEEP),
    (upkeep.compact, _KEEP),
    (upkeep.gc, _KEEP),
    (upkeep.purge, _KEEP),
    (backups.backup, _KEEP),
    (backups.restore, _KEEP),
    (service.up, _SERVE),
    (service.down, _SERVE),
    (status, _SERVE),
    (reap, _SERVE),
    (page, _SERVE),
    (server, _SERVE),
    (deploy, _SERVE),
    (notify, _SERVE),
    (schedule, _SERVE),
    (train_when, _SERVE),
):
    # A function named after a keyword of Python ends in an underscore: import_.
    app.command(_command.__name__.rstrip("_").replace("_", "-"), rich_help_panel=_panel)(_command)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the console script."""
    guard_standard_streams()
    status = run(argv)
    if is_importing():
        from infra.processes.process import exit_at_once

        exit_at_once(status)
    sys.exit(status)


def run(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status. Defects raise their exception."""
    try:
        with _stopping_on_signals(), output_flushed():
            arguments = None if argv is None else list(argv)
            status = app(args=arguments, prog_name="shardmill", standalone_mode=False)
    except ReaderGone:
        return READER_GONE
    except ShardmillError as error:
        return _fail(error.message, error.remedy, error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        status = _CANCELLED
    except Exception as error:
        if not isinstance(error, _CLICK_EXCEPTION):
            raise
        return _usage_error(error)
    if status == _CANCELLED:  # Typer turns Ctrl-C into this status
        return _fail("stopped on request", GO_ON, _CANCELLED)
    return status if isinstance(status, int) else 0


def _usage_error(error: Exception) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "shardmill"
    message = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
    if not message:  # no command at all: the help has been printed
        return 2
    return _fail(message, f"see {command} --help" if isinstance(error, _USAGE_ERROR) else None, 2)


def _fail(message: str, remedy: str | None, status: int) -> int:
    print(f"error: {printable(message, keep=_LAYOUT)}", file=sys.stderr)
    if remedy:
        print(f"remedy: {printable(remedy, keep=_LAYOUT)}", file=sys.stderr)
    return status


@contextlib.contextmanager
def _stopping_on_signals() -> Iterator[None]:
    """Treat requests to end (kill, systemd, docker stop, a closed terminal) like Ctrl-C, within the block."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
