"""The prepare flow: a folder of raw images becomes a published version of a dataset."""

from __future__ import annotations

from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.request import prepare_command
from shardmill.flows.flow_runs import children
from shardmill.flows.flow_runs.events import emit_published
from shardmill.flows.flow_runs.run_states import (
    cancelled_state,
    completed_state,
    failures_shown,
    job_task,
    shardmill_run,
)
from shardmill.flows.flow_runs.showing.headline import sentence
from shardmill.flows.flow_runs.showing.page import Keys, RunPage
from shardmill.flows.flow_runs.showing.prepared import shard_rows, show_prepared
from shardmill.flows.parameters import DatasetName, OptionalFolder, Source, Unset, root_or_default
from shardmill.flows.scheduling.attempts import attempted
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import Cancelled
from shardmill.infra.format.contract import SPLITS


@flow(name="prepare", flow_run_name="prepare-{dataset}")
@shardmill_run
@attempted
def prepare(
    source: Source,
    dataset: DatasetName,
    root: OptionalFolder = None,
    config: PrepareConfig | Unset = None,
    code: OptionalFolder = None,
) -> State[Any]:
    """Turn a folder of images into a new version of a dataset, unless nothing has changed since the last.

    Every image is accounted for, and nothing is published before the accounting adds up. A run that is
    cancelled or dies publishes nothing; the next run reuses its finished work.

    Args:
        source: Folder of images, one folder a class: an absolute path on the worker's machine, or a URI.
        dataset: Name of the dataset.
        root: Folder of the datasets; empty for the worker's default.
        config: How images are stored, filtered, split and packed into shards; empty for the defaults.
        code: Folder of your own modules; empty for the folder in which the worker was started.
    """
    settings = config or PrepareConfig()
    folder, keys = root_or_default(root), Keys.of(dataset, settings)
    again = ["prepare", source, "--dataset", dataset, "--root", folder]
    try:
        with failures_shown("prepare", keys, again, {"": settings}):
            report = prepare_dataset(source, dataset, folder, settings)
    except Cancelled as stop:
        return cancelled_state(stop)
    if not report.result.get("unchanged"):
        emit_published(report.result)
        show_dataset(report, folder, settings)
    is_unchanged = bool(report.result.get("unchanged"))
    return completed_state(sentence(report.result), report.result, is_unchanged=is_unchanged)


@job_task("prepare-dataset")
def prepare_dataset(source: str, dataset: str, root: str, config: PrepareConfig) -> children.JobReport:
    """Run the Beam job in a process of its own and return its result."""
    command = prepare_command(source, dataset, root, config)
    keys = Keys.of(dataset, config)
    return children.run_child_job(command, job="prepare", keys=keys, log=get_run_logger())


@task(name="show-dataset", cache_policy=NO_CACHE)
def show_dataset(report: children.JobReport, root: str, config: PrepareConfig) -> None:
    """Show the accounting, the class balance and the shards of a version on the page of the run."""
    result = report.result
    version = Catalog(root).open(f"{result['dataset']}@{result['version']}")
    shards = shard_rows({split: version.shards(split) for split in SPLITS})
    keys = Keys.of(result["dataset"], config)
    show_prepared(RunPage.of_this_run(), keys, result, shards, report.lost)
