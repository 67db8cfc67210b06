"""These tests need PyTorch, which only an environment of its own has: ``make test-torch``."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmill import Dataset, open_dataset

COUNTS = {"train": {"a": 31, "b": 18, "c": 4}, "test": {"a": 5, "b": 3}}


class _WithoutTorch(pytest.Module):
    """A module of tests that is skipped before it imports PyTorch."""

    def collect(self) -> Iterator[pytest.Item]:
        pytest.skip("PyTorch is not in this environment: run `make test-torch`", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Skip what cannot be imported, and say so."""
    if importlib.util.find_spec("torch") is not None:
        return None
    return _WithoutTorch.from_parent(parent, path=module_path)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of datasets with one published version, ``set@1``."""
    from tests.samples.datasets.published import coloured, publish

    folder = tmp_path_factory.mktemp("datasets")
    publish(folder, coloured(COUNTS, size=(60, 80)), name="set", shards_per_split=3)
    return folder


@pytest.fixture(scope="session")
def dataset(root: Path) -> Dataset:
    """It, opened."""
    return open_dataset("set@1", root=root)


@pytest.fixture(scope="session")
def tensorflow_python() -> str:
    """The interpreter of the environment with TensorFlow."""
    python = os.environ.get("TENSORFLOW_PYTHON", str(Path(__file__).parents[2] / ".venv" / "bin" / "python"))
    if not Path(python).exists():
        pytest.skip(f"no environment with TensorFlow at {python}: run `make test-torch`")
    return python
