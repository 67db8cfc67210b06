"""The command ``python -m beam_jobs.prepare``: a folder of images to a published dataset version.

Reads the configuration, runs the job in a child process (``beam_jobs.job``) that never outlives it, shows its
progress, and says what came out. Needs no Prefect.
"""

from __future__ import annotations

import os
import signal

if __name__ == "__main__":
    # Until run_main takes over, libraries load and nothing has begun: a stop is an end, not a traceback.
    for _number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(_number, lambda *_: os._exit(130))

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from beam_jobs.guard.start import start_job
from beam_jobs.loading import quick_loading
from infra.job_command import JobParser, settings_of
from infra.names import uri_of
from infra.process import exit_at_once, run_main
from infra.progress import Listener, TerminalProgress, emit, events_go_to_parent, result

if TYPE_CHECKING:  # loaded while the job loads what it needs
    from beam_jobs.request import JobRequest
    from infra.children import ChildResult

_EXAMPLES = """\
examples:
  python -m beam_jobs.prepare photos --dataset photos
  python -m beam_jobs.prepare photos --dataset photos --dry-run
  python -m beam_jobs.prepare photos --dataset small --set image.size=128 --set shards.container=none
"""

# What the child must not pass on as its own: this process says the last word.
_OWN_EVENTS = ("result", "error")


def run_prepare(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the job in a child process and wait for it.

    Returns:
        The child's result, with the peak memory of its process tree and the seconds of the whole.

    Raises:
        ConfigError: a setting is wrong. ShardmillError: what the child ended with.
    """
    started = time.monotonic()
    child = _run_child("beam_jobs.job", arguments)
    return {
        **child.reported(),
        "seconds": round(time.monotonic() - started, 3),
        "peak_memory_bytes": child.peak_memory_bytes,
    }


def foresee(arguments: argparse.Namespace) -> dict[str, Any]:
    """What a run would bring, as ``beam_jobs.dry_run`` tells it, in a child process too.

    Raises:
        ConfigError: a setting is wrong. ShardmillError: what the child ended with.
    """
    return _run_child("beam_jobs.dry_run", arguments).reported()


def _run_child(module: str, arguments: argparse.Namespace) -> ChildResult:
    argv = [sys.executable, "-m", module]
    with start_job(argv) as started:
        # The settings take half as long to load as what the job needs, which loads on another core.
        with quick_loading():
            from beam_jobs.guard.supervise import run_guarded

        request = parse_request(arguments)
        with _listener() as on_event:
            return run_guarded(argv, request, on_event, started)


@contextmanager
def _listener() -> Iterator[Listener]:
    """Where the child's events go: to the process that started this one, or before a person's eyes."""

    def pass_on(event: Mapping[str, Any]) -> None:
        if event.get("event") not in _OWN_EVENTS:
            emit(event)

    if events_go_to_parent():
        yield pass_on
        return
    with TerminalProgress() as show:
        yield show


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = JobParser(
        "python -m beam_jobs.prepare",
        "Turn a folder of images into a published, balanced, sharded TFRecord dataset.",
        _EXAMPLES,
    )
    parser.add_argument(
        "source", help="folder of images: a subfolder a class, or train/, validation/, test/ of them"
    )
    parser.add_argument("--dataset", required=True, metavar="NAME", help="name of the dataset")
    parser.add_job_arguments("prepare")
    parser.add_argument(
        "--failure-budget",
        type=float,
        metavar="FRACTION",
        help="fraction of the inputs that may be quarantined",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would come out, and do nothing")
    return parser


def parse_request(arguments: argparse.Namespace) -> JobRequest:
    """The request that a command line makes.

    Raises:
        ConfigError: a setting is wrong.
    """
    from beam_jobs.config import PrepareConfig
    from beam_jobs.request import JobRequest
    from infra.settings import validate

    config = settings_of(arguments, PrepareConfig, "prepare", failure_budget=arguments.failure_budget)
    values = {
        "source": arguments.source if "://" in arguments.source else uri_of(arguments.source),
        "dataset": arguments.dataset,
        "root": arguments.root,
        "config": config,
    }
    return validate(JobRequest, values, where="the command")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    arguments = build_parser().parse_args(argv)
    if arguments.dry_run:
        from beam_jobs.forecast import describe

        outcome = foresee(arguments)
        lines = describe(outcome)
    else:
        from beam_jobs.summary import summary

        outcome = run_prepare(arguments)
        lines = summary(outcome)
    result(outcome)
    print(json.dumps(outcome) if arguments.json else "\n".join(lines), flush=True)
    return 0


if __name__ == "__main__":
    exit_at_once(run_main(main))  # without taking apart what was loaded
