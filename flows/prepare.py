"""The prepare flow: a folder of raw images becomes a published version of a dataset."""

from __future__ import annotations

from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from beam_jobs.config import PrepareConfig
from flows import artifacts, children
from flows.parameters import DatasetName, Source, root_or_default
from flows.stopping import cancelled_state, may_try_again
from infra.catalog import Catalog
from infra.contract import SPLITS
from infra.errors import Cancelled

DEFAULTS = PrepareConfig()


@flow(name="prepare", flow_run_name="prepare-{dataset}")
def prepare(
    source: Source, dataset: DatasetName, root: str | None = None, config: PrepareConfig = DEFAULTS
) -> State[Any]:
    """Turn a folder of images into a new version of a dataset, unless nothing has changed since the last.

    Every image is accounted for, and nothing is published before the accounting adds up. A run that is
    cancelled, or dies, publishes nothing; the next one goes on from what it had finished.

    Args:
        source: Folder of images, one folder a class: an absolute path on the worker's machine, or a URI.
        dataset: Name of the dataset.
        root: Folder of the datasets; empty for that of the worker.
        config: How images are stored, filtered, split and packed into shards.
    """
    folder = root_or_default(root)
    try:
        result = prepare_dataset(source, dataset, folder, config)
    except Cancelled:
        return cancelled_state()
    if result.get("unchanged"):
        return Completed(message=f"Nothing changed: {dataset}@{result['version']} is up to date", data=result)
    show_prepared(result, folder)
    return Completed(message=f"Published {dataset}@{result['version']}", data=result)


@task(
    name="prepare-dataset",
    cache_policy=NO_CACHE,
    retries=2,
    retry_delay_seconds=5,
    retry_condition_fn=may_try_again,
)
def prepare_dataset(source: str, dataset: str, root: str, config: PrepareConfig) -> dict[str, Any]:
    """Run the Beam job in a process of its own; its result."""
    command = [*children.PREPARE, source, "--dataset", dataset, "--root", root]
    command += ["--config-json", config.model_dump_json()]
    key = artifacts.artifact_key(dataset, "prepare-progress")
    return children.run_job(command, key=key, log=get_run_logger()).result


@task(name="show-dataset", cache_policy=NO_CACHE)
def show_prepared(result: dict[str, Any], root: str) -> None:
    """Make the artifacts of the run's page."""
    version = Catalog(root).open(f"{result['dataset']}@{result['version']}")
    artifacts.publish_prepared(
        result, artifacts.shard_rows({split: version.shards(split) for split in SPLITS})
    )
