"""Open the catalog that a command works on, and warn of unfinished work in a dataset of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardmill.infra.dataset.catalog import Catalog
    from shardmill.infra.dataset.version import DatasetVersion


def catalog_at(root: str | None, signing_key: str | None = None) -> Catalog:
    """Return the catalog of the datasets under ``root``; None: under the default folder.

    Args:
        root: the folder of the datasets.
        signing_key: signs the versions that the command publishes; None: they are not signed.
    """
    from shardmill.flows.parameters import root_or_default
    from shardmill.infra.dataset.catalog import Catalog

    return Catalog(root_or_default(root), signing_key)


def warn_of_unfinished_purge(opened: DatasetVersion) -> None:
    """Warn people if a purge of the dataset was begun and not finished."""
    from shardmill.flows.cli import output
    from shardmill.infra.dataset.maintenance.purged import warning_of_unfinished_purge

    if warning := warning_of_unfinished_purge(opened.storage, opened.name):
        output.note(f"warning: {warning}")
