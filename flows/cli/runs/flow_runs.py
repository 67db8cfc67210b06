"""Run a flow from the command line: under a Prefect server where one runs, else its jobs alone.

The first job starts at once. Under a server, Prefect is imported meanwhile, and the flow run takes over the
running job. A job that ends before that, such as prepare of an unchanged source, needs no flow run by
Prefect: like a run without a server it is kept as a record, which `shardmill up` shows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from shardmill.beam_jobs.request import prepare_command
from shardmill.flows.cli import import_meanwhile
from shardmill.flows.cli.output import note, nothing_on_stdout
from shardmill.flows.flow_runs import lost_runs
from shardmill.flows.flow_runs.jobs import train_command
from shardmill.flows.flow_runs.run_records import RunRecord
from shardmill.flows.flow_runs.running import run_job, started_early, tried_again
from shardmill.flows.flow_runs.showing.headline import sentence
from shardmill.flows.server.api import Api, ApiLost, prefect_api, standing_api
from shardmill.flows.server.running_up import running_up, up_process
from shardmill.infra.dataset.views.references import reference_of
from shardmill.infra.errors import GO_ON, Cancelled, ShardmillError, from_event
from shardmill.infra.progress import Event, subscribe
from shardmill.infra.whole_job import TerminalProgress

if TYPE_CHECKING:
    from pydantic import BaseModel

    from shardmill.beam_jobs.config import PrepareConfig
    from shardmill.training.config import TrainConfig

JobResult = dict[str, Any]

# A source of so many files that listing them takes longer gets its flow run while the listing goes on.
_LISTING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Job:
    """A job of a flow.

    Attributes:
        name: "prepare" or "train".
        command: returns its command, from the results of the jobs before it.
        in_words: returns its outcome, from its result.
    """

    name: str
    command: Callable[[Sequence[JobResult]], list[str]]
    in_words: Callable[[JobResult], str]


@dataclass(frozen=True, slots=True)
class FlowCall:
    """A flow with its parameters.

    Attributes:
        name: name of the flow.
        run_name: name of its run.
        load: imports the flow and returns it; called once Prefect's settings are in place.
        jobs: the jobs of the flow, in order.
        parameters: parameters of the flow as Python has them.
        given: parameters of the flow as JSON has them.
    """

    name: str
    run_name: str
    load: Callable[[], Any]
    jobs: tuple[Job, ...]
    parameters: dict[str, Any]
    given: dict[str, Any]


def run_flow(
    call: FlowCall, own: Api | None = None, until_it_answers: Callable[[], None] = lambda: None
) -> JobResult:
    """Run a flow in this process.

    Args:
        call: the flow.
        own: the API of a server that this process has started; None: the one that a command finds.
        until_it_answers: waits for that server.

    Returns:
        The result of the flow's only job, or {job: result}.

    Raises:
        ShardmillError: the job failed. ApiLost: Prefect's API went away before all jobs were done.
        Cancelled: the run was stopped, here or from Prefect.
    """
    api = own or standing_api()
    process_id = up_process() if api is None else None
    if process_id is not None:
        note(
            f"warning: the Prefect server of shardmill up (process {process_id}) does not answer; "
            "this run appears there only after it has ended"
        )
    outcomes = _Outcomes([job.name for job in call.jobs])
    with nothing_on_stdout(), TerminalProgress() as show, _heard_by(show, outcomes.record):
        try:
            if api is not None:
                return _run_under_server(call, api, until_it_answers, outcomes, show)
            _run_alone(call)
            return outcomes.result()
        except ApiLost as lost:
            result = outcomes.result_despite_lost_api(lost)
            show.say(f"{lost.message}; the run's history in Prefect stays incomplete", level="warning")
            return result
        except Cancelled as stop:
            raise outcomes.with_finished_jobs(stop) from stop


def _run_under_server(
    call: FlowCall,
    api: Api,
    until_it_answers: Callable[[], None],
    outcomes: _Outcomes,
    show: TerminalProgress,
) -> JobResult:
    """Start the first job, and import Prefect meanwhile; make a flow run if the job has work to do."""
    with started_early(call.jobs[0].command(())) as job, prefect_api(api):
        importing = import_meanwhile(call.load)
        if _may_be_a_record(call, api) and job.ends_without_work(_LISTING_SECONDS):
            _run_alone(call)
            return outcomes.result()
        importing.join()
        until_it_answers()
        lost_runs.mark_lost_commands()
        return _run_as_flow(call, api, show)


@contextlib.contextmanager
def _heard_by(*listeners: Callable[[Event], None]) -> Iterator[None]:
    """Pass the events of this process to these listeners within the block."""
    with ExitStack() as ends:
        for listener in listeners:
            ends.callback(subscribe(listener))
        yield


def _may_be_a_record(call: FlowCall, api: Api) -> bool:
    """Tell whether a record of the run is enough: it only prepares, and the server is this home's own."""
    up = running_up()
    return [job.name for job in call.jobs] == ["prepare"] and up is not None and up.api_url == api.url


def _run_alone(call: FlowCall) -> None:
    """Run the jobs of a flow without Prefect, and keep a record of the run."""
    results: list[JobResult] = []
    with RunRecord(call.name, call.run_name, call.given).kept() as record:
        for job in call.jobs:
            results.append(tried_again(partial(_result_of, job.command(results))))
            is_unchanged = all(result.get("unchanged") for result in results)
            record.outcome(job.in_words(results[-1]), is_unchanged=is_unchanged)


def _result_of(command: list[str]) -> JobResult:
    try:
        return run_job(command, on_event=lambda _: None, on_line=lambda _: None).reported()
    except KeyboardInterrupt:
        raise Cancelled("stopped on request", GO_ON) from None


class _Outcomes:
    """The results and the error that the jobs of a flow reported, kept apart from Prefect."""

    def __init__(self, jobs: Sequence[str]) -> None:
        self._jobs = jobs
        self._results: list[JobResult] = []
        self._error: Event | None = None

    def record(self, event: Event) -> None:
        """Keep the result or the error of a job, from its event."""
        if event.get("event") == "result":
            self._results.append(event["result"])
        elif event.get("event") == "error":
            self._error = event

    def result(self) -> JobResult:
        """Return the result of the flow, whose jobs have all finished."""
        return self._results[0] if len(self._jobs) == 1 else dict(zip(self._jobs, self._results, strict=True))

    def result_despite_lost_api(self, lost: ApiLost) -> JobResult:
        """Return the flow's result although the Prefect API was lost, if all its jobs had finished.

        Raises:
            ShardmillError: a job's own error, or ``lost`` with the jobs already finished.
        """
        if self._error is not None:
            raise from_event(self._error) from lost
        if len(self._results) < len(self._jobs):
            raise self.with_finished_jobs(lost) from lost
        return self.result()

    def with_finished_jobs(self, error: ShardmillError) -> ShardmillError:
        """Return the error with a message that also lists the jobs already finished."""
        finished = [
            f"{reference_of(result)} was {'published' if job == 'prepare' else 'trained on'}"
            for job, result in zip(self._jobs, self._results, strict=False)
            if not result.get("unchanged")
        ]
        if not finished:
            return error
        return type(error)(f"{error.message}; before that, {' and '.join(finished)}", error.remedy)


def _run_as_flow(call: FlowCall, api: Api, show: TerminalProgress) -> JobResult:
    from prefect.exceptions import CancelledRun, TerminationSignal

    def begins(_flow: object, run: Any, _state: object) -> None:
        ends.enter_context(lost_runs.known_run(run.id))
        show.say(f"Run page: {api.run_page(run.id)}")

    with ExitStack() as ends:
        try:
            result: JobResult = call.load().with_options(on_running=[begins])(**call.parameters)
        except CancelledRun as stop:
            raise Cancelled(str(stop), GO_ON) from stop
        except TerminationSignal as stop:
            raise Cancelled("stopped on request", GO_ON) from stop
    return result


def prepare_call(source: str, dataset: str, root: str, config: PrepareConfig) -> FlowCall:
    """The flow that prepares a source."""
    return FlowCall(
        name="prepare",
        run_name=f"prepare-{dataset}",
        load=_load_prepare,
        jobs=(_preparing(source, dataset, root, config),),
        parameters={"source": source, "dataset": dataset, "root": root, "config": config},
        given={"source": source, "dataset": dataset, "root": root, "config": _chosen(config)},
    )


def train_call(dataset: str, root: str, runs: str, config: TrainConfig) -> FlowCall:
    """The flow that trains on a dataset."""
    command = train_command(dataset, root, runs, config)
    return FlowCall(
        name="train",
        run_name=f"train-{dataset}",
        load=_load_train,
        jobs=(Job("train", lambda _: command, sentence),),
        parameters={"dataset": dataset, "root": root, "runs": runs, "config": config},
        given={"dataset": dataset, "root": root, "runs": runs, "config": _chosen(config)},
    )


def pipeline_call(
    source: str, dataset: str, root: str, runs: str, for_prepare: PrepareConfig, for_train: TrainConfig
) -> FlowCall:
    """The flow that prepares a source, then trains on the published version."""

    def training(done: Any) -> list[str]:
        return train_command(f"{dataset}@{done[0]['version']}", root, runs, for_train)

    shared = {"source": source, "dataset": dataset, "root": root, "runs": runs}
    return FlowCall(
        name="pipeline",
        run_name=f"pipeline-{dataset}",
        load=_load_pipeline,
        jobs=(_preparing(source, dataset, root, for_prepare), Job("train", training, sentence)),
        parameters={**shared, "prepare_config": for_prepare, "train_config": for_train},
        given={**shared, "prepare_config": _chosen(for_prepare), "train_config": _chosen(for_train)},
    )


def _preparing(source: str, dataset: str, root: str, config: PrepareConfig) -> Job:
    command = prepare_command(source, dataset, root, config)
    return Job("prepare", lambda _: command, sentence)


def _chosen(config: BaseModel) -> dict[str, Any]:
    return config.model_dump(mode="json", exclude_defaults=True)


def _load_prepare() -> Any:
    from shardmill.flows.prepare import prepare as flow

    return flow


def _load_train() -> Any:
    from shardmill.flows.train import train as flow

    return flow


def _load_pipeline() -> Any:
    from shardmill.flows.pipeline import pipeline as flow

    return flow
