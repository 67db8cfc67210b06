"""The evaluate flow: a finished run is evaluated again, on any split and version."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State
from prefect.states import Completed
from pydantic import Field

from shardmill.flows.flow_runs import children
from shardmill.flows.flow_runs.jobs import evaluate_command
from shardmill.flows.flow_runs.run_states import cancelled_state, failures_shown, job_task, shardmill_run
from shardmill.flows.flow_runs.showing.page import Keys
from shardmill.flows.flow_runs.showing.trained import evaluated_in_words, publish_evaluated
from shardmill.flows.parameters import (
    DatasetRef,
    OptionalFolder,
    RunRef,
    Unset,
    root_or_default,
    runs_or_default,
)
from shardmill.infra.dataset.views.references import reference_of
from shardmill.infra.errors import Cancelled


@flow(name="evaluate", flow_run_name="evaluate-{run}")
@shardmill_run
def evaluate(
    run: RunRef,
    split: Literal["train", "validation", "test"] = "test",
    dataset: Annotated[DatasetRef, Field(title="text")] | Unset = None,
    root: OptionalFolder = None,
    runs: OptionalFolder = None,
    code: OptionalFolder = None,
) -> State[Any]:
    """Evaluate the best model of a finished run again, on any split.

    Args:
        run: Name of a training run, or NAME@ALIAS such as photos@production.
        split: The split.
        dataset: NAME@VERSION with the same classes; empty for the version that the run was trained on.
        root: Folder of the datasets; empty for the worker's default.
        runs: Folder of the training runs; empty for the worker's default.
        code: Folder of your own modules; empty for the folder in which the worker was started.
    """
    folder, runs_folder = root_or_default(root), runs_or_default(runs)
    again = ["evaluate", run, "--split", split, "--root", folder, "--runs", runs_folder]
    again += ["--dataset", dataset] if dataset else []
    try:
        with failures_shown("evaluate", Keys(run), again, {}):
            result = evaluate_model(run, split, dataset, folder, runs_folder)
    except Cancelled as stop:
        return cancelled_state(stop)
    publish_evaluated(result)
    return Completed(message=f"Evaluated {result['run']} on {reference_of(result)}, {split}", data=result)


@job_task("evaluate-model")
def evaluate_model(run: str, split: str, dataset: str | None, root: str, runs: str) -> dict[str, Any]:
    """Evaluate the model in a process of its own and return its result."""
    command = evaluate_command(run, split, dataset or None, root, runs)
    log = get_run_logger()
    return children.run_child_job(
        command, job="evaluate", keys=Keys(run), log=log, in_words=evaluated_in_words
    ).result
