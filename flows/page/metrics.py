"""Figures of the platform for Prometheus, at ``/metrics``. docs/platform.md lists them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from shardmill.flows.page.pages.charts import latest
from shardmill.flows.page.platform import Platform
from shardmill.flows.page.reading.prefect import Activity, Counts
from shardmill.flows.page.reading.remembered import Known
from shardmill.flows.problems import open_problems
from shardmill.infra.errors import ShardmillError

# More series than this would burden Prometheus more than they tell.
_DATASETS, _LIVE_RUNS = 1_000, 50


async def show(request: Request) -> Response:
    """Return all figures in the text format that the scraper asks for."""
    platform: Platform = request.app.state.platform
    counts, activity = await asyncio.gather(platform.counts(), platform.activity())

    def text() -> tuple[bytes, str]:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Snapshot(platform, counts, activity))
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return encode(registry), content_type

    content, content_type = await run_in_threadpool(text)
    return Response(content, headers={"Content-Type": content_type})


class _Snapshot(Collector):
    """The figures of one moment."""

    def __init__(
        self, platform: Platform, counts: Known[Counts] | None, activity: Activity | str | None
    ) -> None:
        self._platform, self._counts, self._activity = platform, counts, activity

    def collect(self) -> Iterator[Metric]:
        """Yield every figure."""
        if self._counts is not None:
            yield from _of_flows(self._counts, self._activity)
        yield _of_problems()
        yield from _of_datasets(self._platform)
        yield from _of_trainings(self._platform)
        yield from _of_disks(self._platform)


def _of_flows(known: Known[Counts], activity: Activity | str | None) -> Iterator[Metric]:
    """Yield the figures that Prefect has: while it does not answer, the last ones, with their time."""
    is_up = known.problem is None
    yield _family("shardmill_prefect_up", "1 if Prefect's API answers.", (), [((), is_up)])
    if known.value is None:
        return
    yield _family(
        "shardmill_prefect_read_timestamp_seconds",
        "When the figures of Prefect were read.",
        (),
        [((), known.read)],
    )
    yield _family(
        "shardmill_flow_runs", "Runs in Prefect's history, by flow and state.", ("flow", "state"),
        known.value.runs.items(),
    )  # fmt: skip
    waiting = "Runs whose time has come and that have not begun."
    yield _family("shardmill_flow_runs_waiting", waiting, (), [((), known.value.waiting)])
    if isinstance(activity, Activity):
        alive = sum(worker.is_alive for worker in activity.workers)
        yield _family("shardmill_workers_online", "Workers that are alive.", (), [((), alive)])


def _of_problems() -> Metric:
    values = [((problem.kind, problem.subject), problem.since) for problem in open_problems()]
    since = "Open problems of the platform, each with the time when it was first seen."
    return _family("shardmill_problem_since_timestamp_seconds", since, ("kind", "subject"), values)


def _of_datasets(platform: Platform) -> Iterator[Metric]:
    try:
        rows = [platform.datasets.row(name) for name in platform.datasets.names()[:_DATASETS]]
    except ShardmillError:
        return
    published = [(row.num_versions, row.newest) for row in rows if row.newest is not None]
    good = [newest for _, newest in published if newest.problem is None]
    of = ("dataset",)
    yield _family(
        "shardmill_dataset_versions", "Published versions.", of,
        [((newest.dataset,), count) for count, newest in published],
    )  # fmt: skip
    yield _family(
        "shardmill_dataset_broken", "1 if the newest manifest cannot be read.", of,
        [((newest.dataset,), newest.problem is not None) for _, newest in published],
    )  # fmt: skip
    yield _family(
        "shardmill_dataset_records", "Records of the newest version, by split.", ("dataset", "split"),
        [((row.dataset, split), count) for row in good for split, count in row.splits.items()],
    )  # fmt: skip
    yield _family(
        "shardmill_dataset_inputs", "Inputs of the newest version, by outcome.", ("dataset", "outcome"),
        [
            ((row.dataset, name.removesuffix("s")), count)
            for row in good
            for name, count in row.outcomes.items()
            if name != "inputs"
        ],
    )  # fmt: skip
    yield _family(
        "shardmill_dataset_size_bytes", "Size of the shards of the newest version.", of,
        [((row.dataset,), row.num_bytes) for row in good],
    )  # fmt: skip
    yield _family(
        "shardmill_dataset_published_timestamp_seconds", "When the newest version was published.", of,
        [((row.dataset,), row.published) for row in good],
    )  # fmt: skip


def _of_trainings(platform: Platform) -> Iterator[Metric]:
    if platform.runs.copy is not None:
        is_fresh = platform.runs.copy.problem is None
        yield _family(
            "shardmill_runs_store_up",
            "1 if the runs of the object store could be copied.",
            (),
            [((), is_fresh)],
        )
    states: dict[tuple[str, ...], float] = {}
    for row in platform.runs.rows():
        states[row.state,] = states.get((row.state,), 0) + 1
    yield _family(
        "shardmill_training_runs", "Training runs in the folder, by state.", ("state",), states.items()
    )
    live = platform.runs.live()[:_LIVE_RUNS]
    told = {row.name: latest(platform.runs.curves(row.name)) for row in live}
    for name, figure, help_text in (
        ("shardmill_training_images_per_second", "images_per_second", "Rate of a run that trains."),
        ("shardmill_training_loss", "step_loss", "Loss of the last steps of a run that trains."),
        ("shardmill_training_steps_done", "step", "Steps that a run that trains has done."),
    ):
        values = [((run,), figures[figure]) for run, figures in told.items() if figure in figures]
        yield _family(name, help_text, ("run",), values)
    for name, help_text, epochs in (
        ("shardmill_training_epochs_done", "Epochs that are done.", [row.epochs_done for row in live]),
        ("shardmill_training_epochs_wanted", "Epochs of the run.", [row.epochs for row in live]),
    ):
        values = [((row.name,), float(count)) for row, count in zip(live, epochs, strict=True)]
        yield _family(name, help_text, ("run",), values)


def _of_disks(platform: Platform) -> Iterator[Metric]:
    disks = platform.disks()
    labels = [(disk.holds.replace(" ", ""),) for disk in disks]
    sizes = zip(labels, (disk.total_bytes for disk in disks), strict=True)
    free = zip(labels, (disk.free_bytes for disk in disks), strict=True)
    yield _family("shardmill_disk_size_bytes", "Size of the disk that holds it.", ("holds",), sizes)
    yield _family("shardmill_disk_free_bytes", "Free bytes of the disk that holds it.", ("holds",), free)


def _family(
    name: str, help_text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for of, value in values:
        # A name that is not UTF-8 text would break the whole answer.
        family.add_metric([text.encode("utf-8", "backslashreplace").decode() for text in of], float(value))
    return family
