"""The prepare flow: a folder of raw images becomes a published version of a dataset."""

from __future__ import annotations

from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from beam_jobs.config import PrepareConfig
from flows.flow_runs import artifacts, children
from flows.flow_runs.run_states import cancelled_state, should_retry
from flows.parameters import DatasetName, Source, root_or_default
from infra.dataset.catalog import Catalog
from infra.errors import Cancelled
from infra.format.contract import SPLITS

DEFAULTS = PrepareConfig()


@flow(name="prepare", flow_run_name="prepare-{dataset}")
def prepare(
    source: Source, dataset: DatasetName, root: str | None = None, config: PrepareConfig = DEFAULTS
) -> State[Any]:
    """Turn a folder of images into a new version of a dataset, unless nothing has changed since the last.

    Every image is accounted for, and nothing is published before the accounting adds up. A run that is
    cancelled or dies publishes nothing; the next run reuses its finished work.

    Args:
        source: Folder of images, one folder a class: an absolute path on the worker's machine, or a URI.
        dataset: Name of the dataset.
        root: Folder of the datasets; empty for the worker's default.
        config: How images are stored, filtered, split and packed into shards.
    """
    folder = root_or_default(root)
    try:
        result = prepare_dataset(source, dataset, folder, config)
    except Cancelled as stop:
        return cancelled_state(stop)
    if result.get("unchanged"):
        return Completed(message=f"Nothing changed: {dataset}@{result['version']} is up to date", data=result)
    show_prepared(result, folder)
    return Completed(message=f"Published {dataset}@{result['version']}", data=result)


@task(
    name="prepare-dataset",
    cache_policy=NO_CACHE,
    retries=2,
    retry_delay_seconds=5,
    retry_condition_fn=should_retry,
)
def prepare_dataset(source: str, dataset: str, root: str, config: PrepareConfig) -> dict[str, Any]:
    """Run the Beam job in a process of its own and return its result."""
    command = [*children.PREPARE, source, "--dataset", dataset, "--root", root]
    command += ["--config-json", config.model_dump_json()]
    key = artifacts.artifact_key(dataset, "prepare-progress")
    return children.run_child_job(command, key=key, log=get_run_logger()).result


@task(name="show-dataset", cache_policy=NO_CACHE)
def show_prepared(result: dict[str, Any], root: str) -> None:
    """Show the accounting, the class balance and the shards of a version on the page of the run."""
    version = Catalog(root).open(f"{result['dataset']}@{result['version']}")
    artifacts.publish_prepared(
        result, artifacts.shard_rows({split: version.shards(split) for split in SPLITS})
    )
