"""Runner names and options, and running a task on a Beam runner.

Our settings never go through pipeline options, which some runners lose on the way to their workers, but
through the constructor of the ``DoFn``. Everything else that a worker needs is in storage.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from importlib import import_module
from typing import Any, TypeVar

from shardmill.beam_jobs.config import RunnerConfig
from shardmill.beam_jobs.execution.dataflow import (
    check_dataflow,
    dataflow_faults,
    dataflow_options,
    dataflow_pipeline,
)
from shardmill.beam_jobs.execution.flink import FlinkCluster, check_flink, flink_options, only_job
from shardmill.beam_jobs.execution.job_server import cancel, check_prism, job_server_faults, running_prism
from shardmill.beam_jobs.execution.pool.starting import end_ahead, start_ahead, start_server
from shardmill.beam_jobs.execution.task import Task, job_name, recover_fault, work_name
from shardmill.infra.errors import Cancelled, ConfigError, EnvironmentFault
from shardmill.infra.near_names import near_miss
from shardmill.infra.processes.process import num_cpus

T = TypeVar("T")

EMBEDDED, FLINK, PRISM, DATAFLOW, PORTABLE = "embedded", "flink", "prism", "dataflow", "portable"
_RUNNERS = (EMBEDDED, FLINK, PRISM, DATAFLOW, PORTABLE)

# lower-case name -> why it is refused
_REFUSED = {
    "dask": "Beam's DaskRunner reports success with wrong results: outputs go missing or astray",
    "direct": "Beam's DirectRunner first tries Prism, which downloads a program and may hang for ever",
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
# option -> remedy
_OURS = {
    "runner": "set runner.name",
    "streaming": "remove it: these are batch pipelines",
    "save_main_session": "remove it: workers import what they need",
}
_REMEDY = 'use runner.name = "embedded", which is Beam\'s in-process runner'


def num_processes(runner: RunnerConfig) -> int:
    """Return the number of processes of each pool: one pool in this job, or in each worker of a cluster."""
    return runner.processes or (num_cpus() if runner.name in (EMBEDDED, PRISM) else 1)


def num_at_a_time(runner: RunnerConfig) -> int:
    """Return how many items of a task are done at a time; 0 if only the cluster knows."""
    if runner.name in (EMBEDDED, PRISM):
        return num_processes(runner)
    return runner.flink.parallelism * num_processes(runner) if runner.name == FLINK else 0


def check_runner(runner: RunnerConfig, places: Collection[str] = ()) -> None:
    """Check that we run on this runner and that it has the options it needs.

    Args:
        runner: the settings.
        places: the locations of the source and of the datasets, which its workers read and write.

    Raises:
        ConfigError: the runner, an option or a place is wrong; says why, or which name was meant.
    """
    if runner.name not in _RUNNERS:
        raise _no_runner(runner.name)
    given = _given_options(runner)
    if runner.name == EMBEDDED and given:
        raise ConfigError(
            f"runner.options = {list(runner.options)!r}: the embedded runner takes none",
            'remove them, or set runner.name = "flink" or "portable"',
        )
    if runner.name == FLINK:
        check_flink(runner.flink)
    if runner.name == PRISM:
        check_prism(runner.prism_program)
    if runner.name == DATAFLOW:
        check_dataflow(runner.dataflow, places)
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
    return ConfigError(f"runner.name = {name!r} is no runner known here", near_miss(short, list(_RUNNERS)))


def load_beam(runner: RunnerConfig) -> None:
    """Load Beam, while the server that pool processes are forked from loads its libraries."""
    if runner.name in (EMBEDDED, PRISM):
        start_server()
    # On its own thread, as a library that catches every error while it loads would lose a stop.
    _on_own_thread(lambda: import_module("shardmill.beam_jobs.execution.pipeline"))


@contextlib.contextmanager
def started_processes(runner: RunnerConfig, items: int) -> Iterator[None]:
    """Start the processes that ``run_task`` will need for so many items, while the block goes on.

    Those that no task has taken end with the block.
    """
    if runner.name == EMBEDDED:
        start_ahead(min(num_processes(runner), items))
    try:
        yield
    finally:
        end_ahead()


def run_task(task: Task, items: Sequence[int], runner: RunnerConfig) -> float:
    """Run the pipeline that does the given items of a task, to its end.

    Args:
        task: the work.
        items: work items of the task.
        runner: where.

    Returns:
        The processor time of the pool processes (seconds); 0 if the runner does not report it.

    Raises:
        ShardmillError: raised by the task. ConfigError: the runner is not known.
        EnvironmentFault: the job server or the service is not there, or gave up for reasons of its own.
    """
    check_runner(runner)
    from apache_beam.runners.runner import PipelineState

    from shardmill.beam_jobs.execution.pipeline import RunTask

    # Beam logs a failing DoFn at length, several times over; the error holds all that matters.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    with _faults_of(runner), _options_for(task, runner) as options:
        pipeline = _pipeline(runner, options)
        _ = pipeline | RunTask(task, items, num_processes(runner))
        started: list[Any] = []
        try:
            result = _on_own_thread(lambda: _run(pipeline, started))
        except Cancelled:
            if runner.name != EMBEDDED and started:
                cancel(started[0])
            raise
        if result.state != PipelineState.DONE:
            raise EnvironmentFault(f"the pipeline ended as {result.state}", "see the logs of the job server")
        return 0.0 if runner.name == DATAFLOW else _cpu_seconds(result)


def _faults_of(runner: RunnerConfig) -> contextlib.AbstractContextManager[None]:
    """Return the context that turns the errors of a runner into errors of ours."""
    if runner.name == EMBEDDED:
        return _embedded_faults()
    return dataflow_faults() if runner.name == DATAFLOW else job_server_faults()


@contextlib.contextmanager
def _embedded_faults() -> Iterator[None]:
    """Raise the error of ours that an error of the embedded runner carries, if any."""
    try:
        yield
    except RuntimeError as error:
        fault = recover_fault(error)
        if fault is None:
            raise
        raise fault from error


@contextlib.contextmanager
def _options_for(task: Task, runner: RunnerConfig) -> Iterator[list[str]]:
    """Yield Beam's options; on Flink, first cancel other jobs of the same task."""
    if runner.name == PRISM:
        with running_prism(runner.prism_program, _given_options(runner)) as options:
            yield [*options, *runner.options]
        return
    if runner.name == DATAFLOW:
        options = dataflow_options(runner.dataflow, job_name(task), _given_options(runner))
        yield [*options, *runner.options]
        return
    if runner.name != FLINK:
        yield list(runner.options)
        return
    cluster = FlinkCluster(runner.flink.master)
    parallelism = runner.flink.parallelism or cluster.parallelism()
    options = flink_options(runner.flink, job_name(task), parallelism, _given_options(runner))
    with only_job(cluster, work_name(task)):
        yield [*options, *runner.options]


def _run(pipeline: Any, started: list[Any]) -> Any:
    """Run a pipeline to its end and return its result; append the result to ``started`` at the start."""
    result = pipeline.run()
    started.append(result)
    result.wait_until_finish()
    return result


def _on_own_thread(run: Callable[[], T]) -> T:
    """Return the result of a call on a thread of its own.

    ``Cancelled`` is raised on the main thread, so never inside the call, where Beam would take it for an
    error of a ``DoFn``.
    """
    done: Future[T] = Future()

    def call() -> None:
        try:
            done.set_result(run())
        except BaseException as error:  # noqa: BLE001  (raised where the result is asked for)
            done.set_exception(error)

    threading.Thread(target=call, name="pipeline", daemon=True).start()
    return done.result()


def _pipeline(runner: RunnerConfig, options: Sequence[str]) -> Any:
    if runner.name == DATAFLOW:
        return dataflow_pipeline(options)
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    if runner.name != EMBEDDED:
        from apache_beam.runners.portability.portable_runner import PortableRunner

        return beam.Pipeline(runner=PortableRunner(), options=PipelineOptions(flags=list(options)))
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    return beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(flags=[]))


def _cpu_seconds(result: Any) -> float:
    from shardmill.beam_jobs.execution.pipeline import CPU_MILLISECONDS

    counters = result.metrics().query()["counters"]
    milliseconds: int = sum(one.result for one in counters if one.key.metric.name == CPU_MILLISECONDS)
    return milliseconds / 1000
