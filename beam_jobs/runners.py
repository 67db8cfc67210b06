"""Runner name to a Beam runner and its options, and running a pipeline on it.

Settings of ours never go through pipeline options: some runners lose those on the way to their workers. They
go through the constructors of the ``DoFn`` s.
"""

from __future__ import annotations

import difflib
import logging
import os
from typing import Any

from beam_jobs.config import RunnerConfig
from beam_jobs.faults import recover_fault
from infra.errors import ConfigError

_RUNNERS = ("embedded",)

# lower-case name -> why it is refused
_REFUSED = {
    "dask": "Beam's DaskRunner reports success with wrong results: outputs go missing or astray",
    "direct": "Beam's DirectRunner first tries Prism, which downloads a program and may hang for ever",
    "prism": "Prism downloads a program and may hang for ever",
    "interactive": "Beam's InteractiveRunner is for notebooks",
}
_REMEDY = 'use runner.name = "embedded", which is Beam\'s in-process runner with threads'


def num_workers(runner: RunnerConfig) -> int:
    """How many blocks or shards are in work at a time."""
    if runner.workers:
        return runner.workers
    # A container may be given fewer cores than the machine has; not every system can say so.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_runner(name: str) -> None:
    """Is this a runner that we run on?

    Raises:
        ConfigError: it is not; says why, or which name was meant.
    """
    if name in _RUNNERS:
        return
    short = name.lower().removesuffix("runner")
    if short in _REFUSED:
        raise ConfigError(f"runner.name = {name!r} is refused: {_REFUSED[short]}", _REMEDY)
    near = difflib.get_close_matches(name.lower(), _RUNNERS, n=1, cutoff=0.5)
    raise ConfigError(
        f"runner.name = {name!r} is no runner known here",
        f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(_RUNNERS)}",
    )


def run_pipeline(transform: Any, runner: RunnerConfig) -> None:
    """Run a pipeline that is this one transform, to its end.

    Args:
        transform: a ``beam.PTransform`` of a pipeline.
        runner: where.

    Raises:
        ShardmillError: what one of our ``DoFn`` s raised. ConfigError: the runner is not known.
    """
    check_runner(runner.name)
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    # Beam logs a failing DoFn at length, several times over; what matters of it is in the error.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    options = PipelineOptions(
        flags=[],
        direct_num_workers=num_workers(runner),
        direct_running_mode="multi_threading",
    )
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=options)
    _ = pipeline | type(transform).__name__ >> transform
    try:
        pipeline.run().wait_until_finish()
    except RuntimeError as error:
        fault = recover_fault(error)
        if fault is None:
            raise
        raise fault from error
