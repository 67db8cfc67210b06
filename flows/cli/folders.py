"""Open the catalog and the folder of training runs that a command works on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shardmill.flows.cli import output
from shardmill.flows.parameters import root_or_default, runs_or_default
from shardmill.training.aliases import names_an_alias

if TYPE_CHECKING:
    from shardmill.infra.dataset.catalog import Catalog
    from shardmill.infra.dataset.version import DatasetVersion
    from shardmill.training.results.run_files.run_folder import RunFolder


def catalog_at(root: str | None, signing_key: str | None = None) -> Catalog:
    """Return the catalog of the datasets under ``root``; None: under the default folder.

    Args:
        root: the folder of the datasets.
        signing_key: signs the versions that the command publishes; None: they are not signed.
    """
    from shardmill.infra.dataset.catalog import Catalog

    return Catalog(root_or_default(root), signing_key)


def warn_of_unfinished_purge(opened: DatasetVersion) -> None:
    """Warn people if a purge of the dataset was begun and not finished."""
    from shardmill.infra.dataset.maintenance.removed import warning_of_unfinished_purge

    if warning := warning_of_unfinished_purge(opened.storage, opened.name):
        output.note(f"warning: {warning}")


def runs_location(runs: str | None) -> str:
    """Return the folder of the runs as an absolute path or a URI."""
    return runs_or_default(runs).removeprefix("file://")


def runs_folder(runs: str | None) -> Path:
    """Return the folder of the runs as an absolute path; of an object store, a copy of the results in it.

    Raises:
        StorageError: the store cannot be read.
    """
    from shardmill.training.run.files.stored import local_runs

    return local_runs(runs_location(runs))


def run_named(subject: str, runs: str | None, root: str | None) -> RunFolder | None:
    """Open the run that a command names, also by an alias; None: the command names a dataset.

    The beginning of a run's name is taken unless a dataset is called so.
    """
    from shardmill.infra.dataset.catalog import Catalog
    from shardmill.training.results.run_files.run_folder import find_run, open_run, run_names

    folder = runs_folder(runs)
    found = open_run(subject, folder) if names_an_alias(subject) else find_run(subject, folder)
    if found is not None or not subject or set("@?/") & set(subject):
        return found
    if any(name.startswith(subject) for name in run_names(folder)):
        return None if subject in Catalog(root_or_default(root)).datasets() else open_run(subject, folder)
    return None
