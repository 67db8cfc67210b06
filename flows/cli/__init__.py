"""The command `shardmill`: its commands (``tree``), exit statuses and error messages.

Exit status: 0 done, 2 usage or configuration, 3 bad data, 4 environment, 5 a signature is
missing or does not hold, 130 cancelled, 141 the reader of standard output is gone (``| head``), which is not
an error. An error is two lines on standard error,
``error:`` and ``remedy:``. Only a defect shows a traceback.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import FrameType
from typing import Annotated, Any

import typer
import typer.main

from shardmill.flows.cli import old_names, slips, tree
from shardmill.flows.cli.help import Group
from shardmill.infra import release
from shardmill.infra.errors import GO_ON, ShardmillError
from shardmill.infra.processes.process import (
    READER_GONE,
    ReaderGone,
    exit_at_once,
    guard_standard_streams,
    output_flushed,
)
from shardmill.infra.readable import printable

# Typer brings its own copy of click or uses the installed one, depending on its release.
_CLICK_EXCEPTION, _USAGE_ERROR = typer.BadParameter.__mro__[2], typer.BadParameter.__mro__[1]

_CANCELLED = 130
_EXIT_SECONDS = 30.0
_IMPORTING = "import-flow"  # name of a thread
_LAYOUT = "\n\t"  # control characters that a message may contain

_APP = typer.Typer(
    name="shardmill",
    cls=Group,
    help="""Raw images in; balanced, sharded TFRecords and a trained model out.

    Examples:
      shardmill run photos --dataset photos
      shardmill train photos@1 --epochs 20
      shardmill up --detach
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"shardmill {release()}")
        raise typer.Exit


@_APP.callback()
def _options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version of Shardmill"
        ),
    ] = False,
) -> None:
    """Options of the command itself; each command has more."""


@cache
def root() -> Any:
    """The group of all commands."""
    group = typer.main.get_command(_APP)
    tree.add_to(group)
    return group


def main(argv: Sequence[str] | None = None) -> None:
    """Run the console script."""
    guard_standard_streams()
    status = run(argv)
    if is_importing():
        exit_at_once(status)
    # Libraries may wait at the end for ever: Prefect does until its server takes the last lines of the log.
    end = threading.Timer(_EXIT_SECONDS, exit_at_once, [status])
    end.daemon = True
    end.start()
    sys.exit(status)


def run(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status. Defects raise their exception."""
    words = old_names.translated(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    try:
        with _stopping_on_signals(), output_flushed():
            status = root().main(args=words, prog_name="shardmill", standalone_mode=False)
    except ReaderGone:
        return READER_GONE
    except ShardmillError as error:
        return _fail(error.message, error.remedy, error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        status = _CANCELLED
    except Exception as error:
        if not isinstance(error, _CLICK_EXCEPTION):
            raise
        return _usage_error(error, words)
    if status == _CANCELLED:  # Typer turns Ctrl-C into this status
        return _fail("stopped on request", GO_ON, _CANCELLED)
    return status if isinstance(status, int) else 0


def _usage_error(error: Exception, words: Sequence[str]) -> int:
    message = slips.message_of(error)
    if not message:  # no command at all: the help has been printed
        return 2
    remedy = slips.remedy_of(error, words, root()) if isinstance(error, _USAGE_ERROR) else None
    return _fail(message, remedy, 2)


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
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def import_meanwhile(load: Callable[[], Any]) -> threading.Thread:
    """Call ``load`` on a thread; join it before importing anything else that it may import.

    Prefect's settings must be in the environment. A command that needs no flow after all does not wait for
    the thread (``is_importing``).
    """

    def run() -> None:
        with contextlib.suppress(Exception):  # the command calls it again, and fails there
            load()

    thread = threading.Thread(target=run, name=_IMPORTING, daemon=True)
    thread.start()
    return thread


def is_importing() -> bool:
    """Tell whether a thread still imports modules: then the process must end by ``exit_at_once``.

    At an ordinary end, the interpreter would abort the thread in the middle of native code.
    """
    return any(thread.name == _IMPORTING for thread in threading.enumerate())
