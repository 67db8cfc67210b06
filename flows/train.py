"""The train flow: a version of a dataset becomes a trained, evaluated and exported model."""

from __future__ import annotations

from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from flows.flow_runs import artifacts, children
from flows.flow_runs.run_states import cancelled_state, should_retry
from flows.parameters import DatasetRef, root_or_default, runs_or_default
from infra.dataset.views.references import parse_reference
from infra.errors import Cancelled
from training.config import TrainConfig

DEFAULTS = TrainConfig()


@flow(name="train", flow_run_name="train-{dataset}")
def train(
    dataset: DatasetRef, root: str | None = None, runs: str | None = None, config: TrainConfig = DEFAULTS
) -> State[Any]:
    """Train a model on a published version, evaluate it on the other splits, and export it.

    A run that was cancelled or died continues from its last checkpoint when it is run again.

    Args:
        dataset: What to train on: NAME, NAME@VERSION or NAME@latest.
        root: Folder of the datasets; empty for the worker's default.
        runs: Folder of the training runs; empty for the worker's default.
        config: The model, its data, augmentation, optimizer and run.
    """
    try:
        report = train_model(dataset, root_or_default(root), runs_or_default(runs), config)
    except Cancelled as stop:
        return cancelled_state(stop)
    show_trained(report.result, report.metrics)
    return Completed(message=f"Trained {report.result['run_dir']}", data=report.result)


@task(
    name="train-model",
    cache_policy=NO_CACHE,
    retries=2,
    retry_delay_seconds=5,
    retry_condition_fn=should_retry,
)
def train_model(dataset: str, root: str, runs: str, config: TrainConfig) -> children.JobReport:
    """Run the training in a process of its own and return its result and metrics."""
    command = [*children.TRAIN, dataset, "--root", root, "--runs", runs]
    command += ["--config-json", config.model_dump_json()]
    key = artifacts.artifact_key(parse_reference(dataset).name, "train-progress")
    return children.run_child_job(command, key=key, log=get_run_logger())


@task(name="show-model", cache_policy=NO_CACHE)
def show_trained(result: dict[str, Any], metrics: list[dict[str, Any]]) -> None:
    """Show the curves, the final figures and the figures by class on the page of the run."""
    artifacts.publish_trained(result, metrics)
