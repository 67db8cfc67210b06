"""The one shape of our Beam pipelines: work items (numbers), spread over workers, each worked on by itself.

Only these numbers travel through Beam, so its memory stays flat on any runner.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, as_completed

import apache_beam as beam
from apache_beam.metrics import Metrics

from shardmill.beam_jobs.execution.pool import Pool
from shardmill.beam_jobs.execution.task import Task, carry_faults

CPU_MILLISECONDS = "cpu_milliseconds"  # name of the counter of the pool's processor time


class RunTaskDoFn(beam.DoFn):  # type: ignore[misc]
    """Does the items of a task in a pool of processes. Doing an item twice writes the same bytes twice.

    Args:
        task: the work.
        processes: number of processes of the pool.
    """

    def __init__(self, task: Task, processes: int) -> None:
        self._task = task
        self._processes = processes
        self._cpu_milliseconds = Metrics.counter(RunTaskDoFn, CPU_MILLISECONDS)

    def setup(self) -> None:
        """Start the pool."""
        self._pool = Pool(self._task, self._processes)

    def start_bundle(self) -> None:
        """Begin with no item submitted."""
        self._submitted: list[Future[float]] = []

    def process(self, element: int) -> None:
        """Submit an item to the pool."""
        self._submitted.append(self._pool.submit(element))

    def finish_bundle(self) -> None:
        """Wait for all items of the bundle, and raise the first error."""
        try:
            for done in as_completed(self._submitted):
                with carry_faults():
                    self._cpu_milliseconds.inc(round(1000 * done.result()))
        finally:
            for left in self._submitted:
                left.cancel()

    def teardown(self) -> None:
        """End the pool."""
        self._pool.close()


class RunTask(beam.PTransform):  # type: ignore[misc]
    """Does the given items of a task.

    Args:
        task: the work.
        items: work items of the task.
        processes: number of processes of each worker.
    """

    def __init__(self, task: Task, items: Sequence[int], processes: int) -> None:
        super().__init__(task.name)
        self._task = task
        self._items = items
        self._processes = processes

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Build the pipeline."""
        return (
            pipeline
            | "CreateItems" >> beam.Create(self._items, reshuffle=False)
            # int
            | "Reshuffle" >> beam.Reshuffle()
            # int
            | "RunTask" >> beam.ParDo(RunTaskDoFn(self._task, self._processes))
            # nothing: the output is in storage
        )
