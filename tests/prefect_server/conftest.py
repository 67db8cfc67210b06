"""The server that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.prefect_server.server import RunningServer, started_up


@pytest.fixture(scope="package")
def shardmill_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A running `shardmill up`, stopped after the last test of this folder."""
    with started_up(tmp_path_factory.mktemp("shardmill-up")) as server:
        yield server
