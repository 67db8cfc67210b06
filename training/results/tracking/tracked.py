"""The description of a run for tracking systems, and the interface of such a system."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from shardmill.infra.dataset.views.references import reference_of
from shardmill.infra.json_files import read_json
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json
from shardmill.training.config import TrackingSettings

IDENTITIES_FILE = "tracking.json"


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run as other systems see it.

    Attributes:
        run_dir: the folder of the run.
        environment: the content of environment.json, among it the configuration and the dataset.
        settings: the settings of tracking.
        best_metric: the figure of the validation split that decides which model is the best.
    """

    run_dir: Path
    environment: Mapping[str, Any]
    settings: TrackingSettings
    best_metric: str

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.run_dir.name

    @property
    def dataset(self) -> str:
        """The dataset version, as ``name@version``; of a view with its query."""
        about = self.environment["dataset"]
        return reference_of({**about, "dataset": about["name"]})

    @property
    def manifest_sha256(self) -> str:
        """The SHA-256 of the manifest of the dataset version."""
        return str(self.environment["dataset"]["manifest_sha256"])

    def identity(self, system: str) -> dict[str, str] | None:
        """Return what ``remember`` kept of a system; None: the run is new to it."""
        return read_identity(self.run_dir, system)

    def remember(self, system: str, identity: dict[str, str]) -> None:
        """Keep the identity of this run in a system, so that a resumed run goes on there."""
        content = dump_json({**_identities(self.run_dir), system: identity}, indent=1)
        Storage.at(self.run_dir).write_atomic(IDENTITIES_FILE, content.encode("ascii"))


def read_identity(run_dir: Path, system: str) -> dict[str, str] | None:
    """Return the identity of the run in a folder in a system; None: the system does not know it."""
    return _identities(run_dir).get(system)


def _identities(run_dir: Path) -> dict[str, dict[str, str]]:
    path = run_dir / IDENTITIES_FILE
    remedy = "delete it: the next epoch begins a new run in the tracking systems"
    return read_json(path, dict[str, dict[str, str]], remedy) if path.exists() else {}


class Tracker(ABC):
    """A tracking system, for one run. Every function may raise anything."""

    name: ClassVar[str]

    @abstractmethod
    def epoch(self, row: Mapping[str, Any]) -> None:
        """An epoch has ended, with the figures of a row of metrics.jsonl."""

    @abstractmethod
    def end(self, result: Mapping[str, Any]) -> None:
        """The run has finished with a result."""

    @abstractmethod
    def close(self, *, is_finished: bool) -> None:
        """This process is done with the run."""
