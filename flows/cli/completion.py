"""Shell completion: datasets, their versions, and keys of settings."""

from __future__ import annotations

_NEWEST = 20  # versions that are offered


def datasets(incomplete: str) -> list[str]:
    """The names of the datasets in the default folder that begin so."""
    return [name for name in _catalog_names() if name.startswith(incomplete)]


def references(incomplete: str) -> list[str]:
    """Names of datasets; after ``@`` the newest versions of one."""
    name, at, number = incomplete.partition("@")
    if not at:
        return datasets(incomplete)
    from shardmill.infra.dataset.catalog import Catalog
    from shardmill.infra.errors import ShardmillError
    from shardmill.infra.storage.locations import default_root

    try:
        versions = Catalog(default_root()).versions(name)
    except ShardmillError:  # a completion has no place for an error
        return []
    return [
        f"{name}@{version}" for version in versions[: -_NEWEST - 1 : -1] if str(version).startswith(number)
    ]


def settings(incomplete: str) -> list[str]:
    """The keys of the settings of prepare and train with this beginning, up to the ``=``."""
    from shardmill.flows.cli.jobs.settings import models_of_runs
    from shardmill.infra.settings import settings_of

    found = set()
    for section, model in models_of_runs().items():
        for setting in settings_of(model):
            found |= {f"{setting.key}=", f"{section}.{setting.key}="}
    return sorted(key for key in found if key.startswith(incomplete))


def _catalog_names() -> list[str]:
    from shardmill.infra.dataset.catalog import Catalog
    from shardmill.infra.errors import ShardmillError
    from shardmill.infra.storage.locations import default_root

    try:
        return Catalog(default_root()).datasets()
    except ShardmillError:
        return []
