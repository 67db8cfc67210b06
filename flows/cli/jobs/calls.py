"""The flows that commands run: their parameters and jobs. Prefect is imported only when a flow is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardmill.beam_jobs.request import prepare_command
from shardmill.flows.cli.jobs.flow_runs import FlowCall, Job
from shardmill.flows.flow_runs.jobs.job_commands import train_command
from shardmill.flows.flow_runs.showing.headline import sentence

if TYPE_CHECKING:
    from pydantic import BaseModel

    from shardmill.beam_jobs.config import PrepareConfig
    from shardmill.training.config import TrainConfig


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
