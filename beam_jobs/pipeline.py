"""The one shape that our Beam pipelines have: numbers, dealt out to workers, each worked on by itself.

Only numbers travel through Beam, so its memory stays flat on any runner. Where the process that runs a
``DoFn`` has a pool of processes (beam_jobs.pool), the numbers of a bundle are done there, side by side;
elsewhere where the ``DoFn`` is, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import apache_beam as beam

from beam_jobs.faults import carry_faults
from beam_jobs.pool import lend
from beam_jobs.work import Work


class WorkDoFn(beam.DoFn):  # type: ignore[misc]
    """Works on one number. Running it twice writes the same bytes twice."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def setup(self) -> None:
        self._doing = lend(self._work) or WorkHere(self._work)

    def process(self, element: tuple[int, Iterable[int]]) -> None:
        number, _ = element
        self._doing.begin(number)

    def finish_bundle(self) -> None:
        self._doing.finish()

    def teardown(self) -> None:
        self._doing.close()


class WorkHere:
    """A work whose numbers are done where they are begun; the counterpart of ``beam_jobs.pool.LentWork``."""

    def __init__(self, work: Work) -> None:
        self._work = work
        work.open()

    def begin(self, number: int) -> None:
        """Do the work of a number."""
        with carry_faults():
            self._work.do(number)

    def finish(self) -> None:
        """Nothing is left to wait for."""

    def close(self) -> None:
        """Let go of what was opened."""
        self._work.close()


class WorkOnEach(beam.PTransform):  # type: ignore[misc]
    """Works on each of the given numbers."""

    def __init__(self, work: Work, numbers: Sequence[int]) -> None:
        super().__init__(work.name)
        self._work = work
        self._numbers = numbers

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        return (
            pipeline
            | "Spread" >> SpreadNumbers(self._numbers)
            # int, Iterable[int]: a number and its group
            | "Work" >> beam.ParDo(WorkDoFn(self._work))
            # nothing: what comes of the work lies in storage
        )


class SpreadNumbers(beam.PTransform):  # type: ignore[misc]
    """Begins a pipeline with numbers, each by itself: int, and the one group of it.

    A runner deals out what comes out of a grouping, and keeps together what comes before. ``Create`` and
    ``Reshuffle`` group too, each by random keys and with half a dozen steps around it, so that they take
    the embedded runner 0.23 s of processor time for any number of elements; this takes 0.11 s.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__()
        self._pairs = [(number, number) for number in numbers]

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        return (
            pipeline
            | "Begin" >> beam.Impulse()
            # bytes: one, empty
            | "ListNumbers" >> beam.FlatMap(_listed, self._pairs).with_output_types(tuple[int, int])
            # int, int: a number twice
            | "Group" >> beam.GroupByKey()
            # int, Iterable[int]: a number and its group
        )


def _listed(_: bytes, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return pairs
