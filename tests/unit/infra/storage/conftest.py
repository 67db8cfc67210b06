"""A real S3 server for the tests of object storage: moto on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.samples.stores.object_store import ObjectStore, serve


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with serve("storage") as running:
        yield running
