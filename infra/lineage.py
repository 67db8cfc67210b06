"""Report the inputs and outputs of a job to an OpenLineage server, if ``OPENLINEAGE_URL`` is set.

A job says START when it begins, and COMPLETE, FAIL or ABORT when it ends. A job that was killed says nothing:
its START stays alone. Names follow the conventions of OpenLineage: files are in the namespace ``file`` under
their absolute path, objects in the namespace of their bucket, such as ``s3://bucket``. A server that does not
answer costs a warning and about ten seconds, never the job.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from shardmill.infra import release
from shardmill.infra.errors import Cancelled
from shardmill.infra.extras import install
from shardmill.infra.progress import log
from shardmill.infra.storage.locations import absolute_path, public_location

_URL, _NAMESPACE = "OPENLINEAGE_URL", "OPENLINEAGE_NAMESPACE"


@dataclass(frozen=True, slots=True)
class LineageDataset:
    """Data that a job reads or writes.

    Attributes:
        location: path or URI; credentials in it are not told.
        version: number of the version of the data; None: it has none.
        num_examples: records that were written; None: unknown.
    """

    location: str
    version: str | None = None
    num_examples: int | None = None

    def name(self) -> tuple[str, str]:
        """Return its namespace and name."""
        place = public_location(self.location)
        if "://" not in place:
            return "file", absolute_path(place)
        parts = urlsplit(place)
        if parts.scheme == "file":
            return "file", unquote(parts.path)
        return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or "/"


@dataclass(slots=True)
class Lineage:
    """A job that is reported; it adds its outputs when it knows them."""

    outputs: list[LineageDataset] = field(default_factory=list)


@contextlib.contextmanager
def reported_job(job: str, inputs: Sequence[LineageDataset]) -> Iterator[Lineage]:
    """Report the work of the block.

    Args:
        job: name of the job, the same for each run of it, such as ``prepare.photos``.
        inputs: the data that it reads.
    """
    lineage = Lineage()
    tell = _teller(job, inputs, lineage)
    tell("START", None)
    try:
        yield lineage
    except BaseException as error:
        tell("ABORT" if isinstance(error, Cancelled | KeyboardInterrupt) else "FAIL", error)
        raise
    tell("COMPLETE", None)


def _teller(
    job: str, inputs: Sequence[LineageDataset], lineage: Lineage
) -> Callable[[str, BaseException | None], None]:
    """Return the function that reports a state of the job; it does nothing if no server is set."""
    if not os.environ.get(_URL):
        return lambda state, error: None
    if importlib.util.find_spec("openlineage") is None:
        log(f"{_URL} is set, but nobody is told: {install('openlineage')}", level="warning")
        return lambda state, error: None
    tellers: list[_Teller] = []
    is_lost = False

    def tell(state: str, error: BaseException | None) -> None:
        nonlocal is_lost
        if is_lost:
            return
        try:
            if not tellers:
                tellers.append(_Teller(job, inputs))
            tellers[0].tell(state, lineage.outputs, error)
        except Exception as fault:  # noqa: BLE001  a client may raise anything; the job goes on
            is_lost = True
            message = (str(fault).splitlines() or [type(fault).__name__])[0][:300]
            url = public_location(os.environ.get(_URL, ""))
            log(f"OpenLineage at {url} is not told about {job}: {message}", level="warning")

    return tell


class _Teller:
    """Sends the events of one run of a job."""

    def __init__(self, job: str, inputs: Sequence[LineageDataset]) -> None:
        from openlineage.client import OpenLineageClient
        from openlineage.client.uuid import generate_new_uuid

        self._client = OpenLineageClient()
        self._job = job
        self._inputs = inputs
        self._run_id = str(generate_new_uuid())

    def tell(self, state: str, outputs: Sequence[LineageDataset], error: BaseException | None) -> None:
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import error_message_run, output_statistics_output_dataset

        facets: dict[str, Any] = {}
        if error is not None:
            message = str(error) or type(error).__name__
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(message, "python")
        written = []
        for each in outputs:
            counts = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(each.num_examples)
            of_output: Any = {} if each.num_examples is None else {"outputStatistics": counts}
            written.append(OutputDataset(*each.name(), outputFacets=of_output, facets=_facets(each)))
        self._client.emit(
            RunEvent(
                eventType=RunState[state],
                eventTime=datetime.now(UTC).isoformat(),
                run=Run(self._run_id, facets=facets),
                job=Job(os.environ.get(_NAMESPACE) or "shardmill", self._job),
                inputs=[InputDataset(*each.name(), facets=_facets(each)) for each in self._inputs],
                outputs=written,
                producer=f"urn:shardmill:{release()}",
            )
        )


def _facets(dataset: LineageDataset) -> Any:
    from openlineage.client.facet_v2 import dataset_version_dataset

    if dataset.version is None:
        return {}
    return {"version": dataset_version_dataset.DatasetVersionDatasetFacet(dataset.version)}
