"""Find training runs and read what their folders tell. Imports no TensorFlow."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.dataset.views.references import parse_reference
from infra.digests import digest_of
from infra.errors import CorruptDataError, DataError, NotFoundError, near_miss
from infra.storage.filesystem import Storage
from training.aliases.history import AliasHistory, list_aliases
from training.aliases.names import AliasName, names_an_alias, parse_alias
from training.results.metrics.figures import FIGURES

_RESULT, _IDENTITY, _ENVIRONMENT = "result.json", "run.json", "environment.json"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of a training run.

    Attributes:
        path: the folder.
        identity: dataset and settings, from run.json.
        result: the result; None: the run is unfinished.
    """

    path: Path
    identity: dict[str, Any]
    result: dict[str, Any] | None

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.path.name

    @property
    def dataset(self) -> str:
        """The dataset version, as ``name@version``; of a view with its query."""
        return str(self.identity["dataset"])

    @property
    def model(self) -> str:
        """The name of the model."""
        return str(self.identity["config"]["model"]["name"])

    @property
    def epochs_wanted(self) -> int:
        """The epochs of the configuration."""
        return int(self.identity["config"]["run"]["epochs"])

    @property
    def epochs_done(self) -> int:
        """The epochs that are done."""
        if self.result is not None:
            return len(self.result["history"])
        metrics = self.path / "metrics.jsonl"
        return len(metrics.read_text().splitlines()) if metrics.is_file() else 0

    @property
    def task(self) -> str:
        """The name of the task that a finished run learned."""
        return str((self.result or {}).get("task", "single-label"))  # runs of earlier releases name none

    @property
    def test_figure(self) -> tuple[str, float] | None:
        """The name and value of the most important figure on the test split, where it was measured."""
        found = (self.result or {}).get("metrics", {}).get("test", {})
        return next(((name, float(found[name])) for name in FIGURES if name in found), None)

    @property
    def dataset_name(self) -> str:
        """The name of the dataset."""
        return parse_reference(self.dataset).name

    @property
    def dataset_version(self) -> int:
        """The number of the dataset version."""
        return int(parse_reference(self.dataset).version)

    @property
    def manifest_sha256(self) -> str | None:
        """The SHA-256 of the manifest of the dataset version; None: a run of an early release."""
        if not self.environment_file.is_file():
            return None
        found = _read(self.environment_file).get("dataset", {}).get("manifest_sha256")
        return None if found is None else str(found)

    @property
    def environment_file(self) -> Path:
        """The file of code, packages, devices and configuration, written when training begins."""
        return self.path / _ENVIRONMENT

    def config(self) -> dict[str, Any]:
        """Return the settings of the run, the whole ones where environment.json has them."""
        path = self.environment_file
        if path.is_file():
            return dict(_read(path)["config"])
        # Settings of reading stand in run.json only as far as they change the outcome.
        return {name: table for name, table in self.identity["config"].items() if name != "reading"}

    def evaluation_dir(self, ref: str) -> Path:
        """Return the folder of the predictions on a dataset version or view, given as ``name@version``."""
        if ref == self.dataset:
            return self.path
        of = parse_reference(ref)
        view = "" if of.query is None else f"-view-{digest_of(of.query, length=10)}"
        return self.path / "evaluations" / f"{of.name}-v{of.version}{view}"

    def finished(self) -> dict[str, Any]:
        """Return the result.

        Raises:
            DataError: the run is unfinished.
        """
        if self.result is None:
            raise DataError(
                f"the run {self.name} is unfinished: it has no {_RESULT}",
                "run the same training again: it goes on from its last checkpoint",
            )
        return self.result

    def predictions(self, split: str, ref: str | None = None) -> Path:
        """Return the file of predictions of a split.

        Args:
            split: the split.
            ref: the dataset version as ``name@version``; None: that of the run.

        Raises:
            DataError: the run is unfinished. NotFoundError: it has no such file.
        """
        self.finished()
        from training.results.predictions.file import predictions_file  # with it come image libraries

        path = self.evaluation_dir(ref or self.dataset) / predictions_file(split)
        if not path.is_file():
            on, option = ("", "") if ref is None else (f" of {ref}", f" --dataset {ref}")
            raise NotFoundError(
                f"the run {self.name} has no predictions of the {split} split{on}",
                "write them, if the dataset has that split: "
                f"shardmill evaluate {self.name} --split {split}{option}",
            )
        return path


def list_runs(runs: Path) -> list[RunFolder]:
    """Return the runs below a folder, sorted by name; folders without run.json are no runs."""
    if not runs.is_dir():
        return []
    found = sorted(path for path in runs.iterdir() if is_run(path))
    return [read_run(path) for path in found]


def open_run(named: str, runs: Path) -> RunFolder:
    """Open a run by its folder, by its name, or by an alias.

    Args:
        named: the path of the folder, its name in ``runs``, or an alias such as ``photos@production``.
        runs: the folder of the runs.

    Raises:
        NotFoundError: there is no such run or alias; suggests the near miss.
    """
    found = find_run(named, runs)
    if found is not None:
        return found
    if names_an_alias(named):
        return _open_holder(parse_alias(named), runs)
    known = [run.name for run in list_runs(runs)]
    none = "there are none: `shardmill train NAME` makes one; --runs names another folder"
    remedy = near_miss(named, known) or none
    raise NotFoundError(f"no training run {named!r} under {runs}", remedy)


def _open_holder(alias: AliasName, runs: Path) -> RunFolder:
    """Open the run that has an alias."""
    storage = Storage.at(runs)
    holder = AliasHistory(storage, alias).current()
    if holder is None:
        known = [str(each.name) for each in list_aliases(storage)]
        none = f"give it to a run: shardmill model promote RUN --alias {alias.alias}"
        raise NotFoundError(
            f"no run under {runs} has the alias {alias}", near_miss(str(alias), known) or none
        )
    found = find_run(holder.run, runs)
    if found is None:
        raise NotFoundError(
            f"{alias} is the run {holder.run}, which is not under {runs}",
            f"bring its folder back, or give the alias to another run: shardmill model rollback {alias}",
        )
    return found


def find_run(named: str, runs: Path) -> RunFolder | None:
    """Open a run like ``open_run``; None: there is none."""
    for path in (runs / named, Path(named)):
        if is_run(path):
            return read_run(path.resolve())
    return None


def is_run(path: Path) -> bool:
    """Tell whether a folder belongs to a run."""
    return (path / _IDENTITY).is_file()


def read_run(path: Path) -> RunFolder:
    """Read the run in a folder.

    Raises:
        CorruptDataError: one of its files is damaged.
    """
    result = path / _RESULT
    return RunFolder(path, _read(path / _IDENTITY), _read(result) if result.is_file() else None)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CorruptDataError(
            f"{path} cannot be read: {error}", "set run.fresh=true to train anew"
        ) from error
    return found
