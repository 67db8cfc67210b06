"""Runs of the job in this process, some of them stopped on the way, and what they leave on disk."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.job import prepare_version
from shardmill.beam_jobs.request import JobRequest
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify


def run(source: Path, root: Path, **config: Any) -> dict[str, Any]:
    """Prepare the dataset "d" with small blocks; ``config`` as in a configuration file."""
    settings = PrepareConfig.model_validate({"runner": {"processes": 2, "block_images": 8}, **config})
    return prepare_version(JobRequest(source=str(source), dataset="d", root=str(root), config=settings))


class Saved:
    """A folder that is made once and brought back before each test.

    It always lies in the same place, with the same times: its sources stay the same to prepare.
    """

    def __init__(self, folder: Path) -> None:
        """Save the folder as it is now."""
        self._folder = folder
        self._saved = folder.with_name(f"{folder.name}-saved")
        shutil.copytree(folder, self._saved)

    def bring_back(self) -> Path:
        """Undo all changes; return the folder."""
        shutil.rmtree(self._folder)
        shutil.copytree(self._saved, self._folder)
        return self._folder


def folders(root: Path, name: str) -> set[str]:
    """Names of the folders in one of the dataset's folders: its spools, or its plans' data."""
    return {path.name for path in (root / "d" / name).iterdir() if path.is_dir()}


def problems(root: Path) -> list[str]:
    """The problems that verify finds in all versions of the dataset."""
    catalog = Catalog(root)
    opened = [catalog.open(f"d@{version}") for version in catalog.versions("d")]
    return [problem for version in opened for problem in verify(version).problems]


class Stopped(Exception):
    """Stands for a process that is killed at some point."""


@contextmanager
def stopped(at: object, name: str) -> Iterator[None]:
    """Whatever runs within is stopped when it calls ``name`` of the module ``at``."""

    def stop(*_: object, **__: object) -> None:
        raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(at, name, stop)
        with pytest.raises(Stopped):
            yield


def during(at: object, name: str, then: Callable[[], object]) -> Callable[..., Any]:
    """A stand-in for the function ``name`` of ``at``: first ``then`` runs, once, in a thread of its own."""
    original = getattr(at, name)
    left = [then]

    def stand_in(*arguments: Any, **named: Any) -> Any:
        if left:
            other = threading.Thread(target=left.pop())
            other.start()
            other.join()
        return original(*arguments, **named)

    return stand_in
