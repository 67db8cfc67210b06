"""Runner name to a Beam runner and its options, and running a pipeline on it.

Settings of ours never go through pipeline options: some runners lose those on the way to their workers. They
go through the constructors of the ``DoFn`` s. What else a worker needs it finds in storage, never in the
process that started the pipeline.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from beam_jobs.config import RunnerConfig
from beam_jobs.faults import recover_fault
from beam_jobs.loading import end_bundles_at_once, lean_beam, quick_loading
from beam_jobs.pool import has_pool
from beam_jobs.slots import SPARE, allow_at_once
from beam_jobs.work import Work
from infra.errors import Cancelled, ConfigError, EnvironmentFault
from infra.process import num_cpus

T = TypeVar("T")

EMBEDDED, PORTABLE = "embedded", "portable"
_RUNNERS = (EMBEDDED, PORTABLE)
_SAID_CHARACTERS = 600

# lower-case name -> why it is refused
_REFUSED = {
    "dask": "Beam's DaskRunner reports success with wrong results: outputs go missing or astray",
    "direct": "Beam's DirectRunner first tries Prism, which downloads a program and may hang for ever",
    "prism": "Prism downloads a program and may hang for ever",
    "interactive": "Beam's InteractiveRunner is for notebooks",
}
_PORTABLE_NEEDS = {
    "job_endpoint": "the address of the job server",
    "environment_type": "which says how workers start",
}
_PORTABLE_EXAMPLE = (
    "for example runner.options = "
    '["--job_endpoint=localhost:8099", "--environment_type=EXTERNAL", "--environment_config=localhost:50000"]'
)
_OPTION = re.compile(r"--([a-z][a-z0-9_]*)(=.*)?", re.DOTALL)
# option -> what to do in its place
_OURS = {
    "runner": "set runner.name",
    "streaming": "leave it away: these are batch pipelines",
    "save_main_session": "leave it away: workers import what they need",
}
_REMEDY = 'use runner.name = "embedded", which is Beam\'s in-process runner'


def num_workers(runner: RunnerConfig) -> int:
    """How many blocks or shards are in work at a time."""
    return runner.workers or num_cpus()


def pool_size(runner: RunnerConfig) -> int:
    """How many processes the job keeps for the work (beam_jobs.pool); 0 where it does without.

    One more than workers: while it computes, another may wait for the disk.
    """
    workers = num_workers(runner)
    return workers + SPARE if runner.name == EMBEDDED and workers > 1 else 0


def check_runner(runner: RunnerConfig) -> None:
    """Is this a runner that we run on, and are its options such as it needs?

    Raises:
        ConfigError: it is not; says why, or which name was meant.
    """
    if runner.name not in _RUNNERS:
        raise _no_runner(runner.name)
    given = _given_options(runner)
    if runner.name == EMBEDDED and given:
        raise ConfigError(
            f"runner.options = {list(runner.options)!r}: the embedded runner takes none",
            'leave them away, or set runner.name = "portable"',
        )
    if runner.name == PORTABLE:
        for needed, why in _PORTABLE_NEEDS.items():
            if needed not in given:
                raise ConfigError(f"runner.options has no --{needed}=..., {why}", _PORTABLE_EXAMPLE)


def _given_options(runner: RunnerConfig) -> set[str]:
    """Names of the options given.

    Raises:
        ConfigError: one is no option, or is ours to set.
    """
    names = set()
    for option in runner.options:
        found = _OPTION.match(option)
        if found is None:
            raise ConfigError(
                f"runner.options: {option!r} is no option of Beam's", "write each as --name or --name=value"
            )
        if found[1] in _OURS:
            raise ConfigError(f"runner.options: --{found[1]} is set by Shardmill", _OURS[found[1]])
        names.add(found[1])
    return names


def _no_runner(name: str) -> ConfigError:
    short = name.lower().removesuffix("runner")
    if short in _REFUSED:
        return ConfigError(f"runner.name = {name!r} is refused: {_REFUSED[short]}", _REMEDY)
    near = difflib.get_close_matches(name.lower(), _RUNNERS, n=1, cutoff=0.5)
    return ConfigError(
        f"runner.name = {name!r} is no runner known here",
        f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(_RUNNERS)}",
    )


def load_beam(runner: RunnerConfig) -> None:
    """Load Beam, as far as the runner needs it."""
    if "apache_beam" in sys.modules:
        return
    embedded = runner.name == EMBEDDED
    with quick_loading(), lean_beam() if embedded else contextlib.nullcontext():
        from beam_jobs import pipeline  # noqa: F401
    if embedded:
        end_bundles_at_once()


def run_pipeline(work: Work, numbers: Sequence[int], runner: RunnerConfig) -> None:
    """Run the pipeline that does a work on each of the given numbers, to its end.

    Args:
        work: what is done.
        numbers: on which.
        runner: where.

    Raises:
        ShardmillError: what one of our ``DoFn`` s raised. ConfigError: the runner is not known.
        EnvironmentFault: the job server is not there, or gave up for reasons of its own.
    """
    check_runner(runner)
    load_beam(runner)
    import apache_beam as beam

    from beam_jobs.pipeline import WorkOnEach

    # Beam logs a failing DoFn at length, several times over; what matters of it is in the error.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    with _faults_recovered(runner):
        pipeline = _pipeline(runner)
        _ = pipeline | WorkOnEach(work, numbers)
        state = _apart(lambda: _run(pipeline, runner)) if has_pool() else _run(pipeline, runner)
    if state != beam.runners.runner.PipelineState.DONE:
        raise EnvironmentFault(f"the pipeline ended as {state}", "see the logs of the job server")


def _run(pipeline: Any, runner: RunnerConfig) -> Any:
    """The state that a pipeline ends in."""
    result = pipeline.run()
    try:
        return result.wait_until_finish()
    except Cancelled:
        if runner.name != EMBEDDED:
            with contextlib.suppress(Exception):  # the server may be the reason
                result.cancel()
        raise


def _apart(run: Callable[[], T]) -> T:
    """The result of a call on a thread of its own.

    A stop is raised on this one, and so never within the call, where Beam would take it for an error of ours.
    """
    done: Future[T] = Future()

    def call() -> None:
        try:
            done.set_result(run())
        except BaseException as error:  # noqa: BLE001  (it is raised where the result is asked for)
            done.set_exception(error)

    threading.Thread(target=call, name="pipeline", daemon=True).start()
    return done.result()


def _pipeline(runner: RunnerConfig) -> Any:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    if runner.name == PORTABLE:
        from apache_beam.runners.portability.portable_runner import PortableRunner

        return beam.Pipeline(runner=PortableRunner(), options=PipelineOptions(flags=list(runner.options)))
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    if has_pool():  # whose processes work side by side: Beam need not, and starts four times as fast
        return beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(flags=[]))
    allow_at_once(num_workers(runner))
    options = PipelineOptions(
        flags=[],
        direct_num_workers=num_workers(runner) + SPARE,
        direct_running_mode="multi_threading",
    )
    return beam.Pipeline(runner=FnApiRunner(), options=options)


@contextlib.contextmanager
def _faults_recovered(runner: RunnerConfig) -> Iterator[None]:
    """Turn a runner's error into the one of ours that it stands for, and a job server's into one of ours."""
    import grpc

    try:
        yield
    except (RuntimeError, grpc.RpcError, grpc.FutureTimeoutError) as error:
        fault = recover_fault(error)
        if fault is not None:
            raise fault from error
        if runner.name == EMBEDDED:
            raise
        said = " ".join(str(error).split())[:_SAID_CHARACTERS] or type(error).__name__
        raise EnvironmentFault(
            f"the job server ended the pipeline: {said}",
            "see its logs and those of the workers; then run the same command again: it goes on where it was",
        ) from error
