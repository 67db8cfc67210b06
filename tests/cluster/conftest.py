"""Tests across real servers and clusters. `make test-cluster` runs them, `make test` does not."""

from __future__ import annotations

import pytest

from tests.samples.ranks.local_ranks import local, root

__all__ = ["local", "root"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder as slow."""
    for item in items:
        if item.nodeid.startswith("tests/cluster/"):
            item.add_marker(pytest.mark.slow)
