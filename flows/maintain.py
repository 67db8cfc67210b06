"""The maintain flow: compact a dataset, and remove versions and files that are no longer kept."""

from __future__ import annotations

from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State

from shardmill.beam_jobs.config.maintain import MaintainConfig
from shardmill.flows.flow_runs import children
from shardmill.flows.flow_runs.run_states import (
    cancelled_state,
    completed_state,
    failures_shown,
    job_task,
    shardmill_run,
)
from shardmill.flows.flow_runs.showing.markdown import escaped
from shardmill.flows.flow_runs.showing.page import Keys, RunPage
from shardmill.flows.parameters import DatasetName, OptionalFolder, root_or_default, runs_or_default
from shardmill.flows.scheduling.attempts import attempted
from shardmill.infra.errors import Cancelled
from shardmill.infra.processes.job_command import config_arguments, python_module
from shardmill.infra.readable import counted, readable_bytes

MAINTAIN: tuple[str, ...] = tuple(python_module("shardmill.beam_jobs.maintain.upkeep"))
DEFAULTS = MaintainConfig()
NOTHING_TO_DO = "Nothing to do"


@flow(name="maintain", flow_run_name="maintain-{dataset}")
@shardmill_run
@attempted
def maintain(
    dataset: DatasetName,
    root: OptionalFolder = None,
    runs: OptionalFolder = None,
    config: MaintainConfig = DEFAULTS,
) -> State[Any]:
    """Compact a dataset, drop versions that no rule keeps, and remove files that no version needs.

    The newest version stays, and so do versions that a training run used, unless you say otherwise.

    Args:
        dataset: Name of the dataset.
        root: Folder of the datasets; empty for the worker's default.
        runs: Folder of the training runs; empty for the worker's default.
        config: What is compacted, kept and removed.
    """
    protected = trained_versions(dataset, runs_or_default(runs)) if config.keep_trained else []
    folder = root_or_default(root)
    try:
        with failures_shown("maintain", Keys(dataset), [], {}):
            done = maintain_dataset(dataset, folder, config, protected)
    except Cancelled as stop:
        return cancelled_state(stop)
    show_maintained(done)
    return completed_state(in_words(done), done, is_unchanged=in_words(done) == NOTHING_TO_DO)


@job_task("maintain-dataset")
def maintain_dataset(dataset: str, root: str, config: MaintainConfig, protected: list[int]) -> dict[str, Any]:
    """Run the maintenance in a process of its own and return its result."""
    command = [*MAINTAIN, "--dataset", dataset, "--root", root, *config_arguments(config.model_dump_json())]
    for version in protected:
        command += ["--protect", str(version)]
    log = get_run_logger()
    return children.run_child_job(
        command, job="maintain", keys=Keys(dataset), log=log, in_words=in_words
    ).result


@task(name="show-maintenance", cache_policy=NO_CACHE)
def show_maintained(done: dict[str, Any]) -> None:
    """Show the removed versions and files on the page of the run."""
    name = str(done["dataset"])
    description = escaped(f"Maintenance of {name}: {in_words(done)}")
    RunPage.of_this_run().table(Keys(name).key("maintenance"), _maintained_rows(done), description)


def trained_versions(dataset: str, runs: str) -> list[int]:
    """The versions of a dataset that the training runs of a folder used.

    Raises:
        StorageError: the folder is in a store that cannot be read.
    """
    from shardmill.training.results.run_files.run_folder import list_runs
    from shardmill.training.run.files.stored import local_runs

    return sorted(set[int]().union(*(run.versions_of(dataset) for run in list_runs(local_runs(runs)))))


def _maintained_rows(done: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of a maintenance, a row each."""
    name = done["dataset"]
    rows: list[dict[str, Any]] = []
    if done["compacted"] is not None:
        rows.append(
            {"what": "compacted version published", "name": f"{name}@{done['compacted']}", "size": ""}
        )
    rows += [
        {"what": "version dropped", "name": f"{name}@{number}", "size": ""} for number in done["dropped"]
    ]
    rows += [
        {"what": "unfinished work removed", "name": run["run"], "size": readable_bytes(run["num_bytes"])}
        for run in done["interrupted"]
    ]
    files = counted(done["num_files"], "file")
    rows.append({"what": "files removed", "name": files, "size": readable_bytes(done["num_bytes"])})
    rows.append({"what": "versions kept", "name": ", ".join(map(str, done["kept"])), "size": ""})
    return rows


def in_words(done: dict[str, Any]) -> str:
    """The results of a maintenance in one line."""
    parts = []
    if done["compacted"] is not None:
        parts.append(f"compacted as {done['dataset']}@{done['compacted']}")
    if done["dropped"]:
        parts.append(f"dropped {counted(len(done['dropped']), 'version')}")
    if done["interrupted"]:
        parts.append(f"removed unfinished work of {counted(len(done['interrupted']), 'run')}")
    if done["num_files"]:
        parts.append(f"removed {counted(done['num_files'], 'file')} ({readable_bytes(done['num_bytes'])})")
    text = ", ".join(parts) or NOTHING_TO_DO
    return f"Would have: {text}" if done["dry_run"] and parts else text[:1].upper() + text[1:]
