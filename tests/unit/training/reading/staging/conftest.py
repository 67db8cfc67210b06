"""A dataset in a real S3 endpoint, and stagings of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.reading.staging import fetching
from shardmill.training.reading.staging.staging import Staging
from tests.samples.datasets.staged_set import publish_set
from tests.samples.stores.object_store import ObjectStore, serve_version


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> DatasetVersion:
    return publish_set(tmp_path_factory.mktemp("datasets"))


@pytest.fixture(scope="module")
def server(local: DatasetVersion) -> Iterator[ObjectStore]:
    with serve_version(local, "staging") as running:
        yield running


@pytest.fixture
def store(server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    server.faults.clear()
    server.gets.clear()
    monkeypatch.setattr(fetching, "RETRY_SECONDS", (0.01, 0.02))
    return server


@pytest.fixture
def version(store: ObjectStore) -> DatasetVersion:
    return Catalog(store.location("root")).open("set")


@pytest.fixture
def make(version: DatasetVersion, tmp_path: Path) -> Iterator[Callable[..., Staging]]:
    made: list[Staging] = []

    def staging(budget: int | None = None, **options: Any) -> Staging:
        made.append(Staging(version, tmp_path / "staged", budget, **options))
        return made[-1]

    yield staging
    for one in made:
        one.close()
