"""Find training runs and read what their folders tell. Imports no TensorFlow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NotRequired, cast

from pydantic import AfterValidator
from typing_extensions import TypedDict

from shardmill.infra import progress as events
from shardmill.infra.dataset.views.references import parse_joined
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import CorruptDataError, DataError, NotFoundError, UsageError
from shardmill.infra.json_files import decode_json, open_shape, read_json
from shardmill.infra.near_names import near_miss
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.aliases import AliasName, names_an_alias, parse_alias
from shardmill.training.aliases.history import AliasHistory, list_aliases
from shardmill.training.metrics.figures import FIGURES

RESULT_FILE, RUN_FILE, _ENVIRONMENT = "result.json", "run.json", "environment.json"
_SHOWN = 5
_AGAIN = "train again with the same settings and run.fresh=true, or delete the folder of the run"


def _checked_reference(text: str) -> str:
    try:
        parse_joined(text)
    except UsageError as error:
        raise ValueError(error.message) from error
    return text


@open_shape
class _ModelSettings(TypedDict):
    name: str


@open_shape
class _RunSettings(TypedDict):
    epochs: NotRequired[int]


@open_shape
class _Settings(TypedDict):
    model: _ModelSettings
    run: _RunSettings
    optimizer: dict[str, Any]


class _Settled(TypedDict):
    epochs: int
    global_batch_size: NotRequired[int | None]
    accumulate_steps: NotRequired[int | None]


@open_shape
class RunIdentity(TypedDict):
    """The content of run.json: the dataset version, the settings, and values that the run determined."""

    dataset: Annotated[str, AfterValidator(_checked_reference)]
    plan: NotRequired[str]
    config: _Settings
    settled: NotRequired[_Settled]


@open_shape
class _Best(TypedDict):
    loss: NotRequired[float | None]


@open_shape
class RunResult(TypedDict):
    """The content of result.json; what else a result says is for people and other programs."""

    history: list[dict[str, Any]]
    metrics: NotRequired[dict[str, dict[str, Any]]]
    best: NotRequired[_Best | None]
    task: NotRequired[str]
    epochs: NotRequired[int]
    stopped_early: NotRequired[str | None]
    notes: NotRequired[list[str]]
    classes: NotRequired[list[str]]


@open_shape
class _DatasetRead(TypedDict):
    manifest_sha256: NotRequired[str | None]


@open_shape
class _Environment(TypedDict):
    config: dict[str, dict[str, Any]]
    dataset: NotRequired[_DatasetRead]


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
        return int(self.identity["config"]["run"].get("epochs", self.epochs_done))

    @property
    def epochs_done(self) -> int:
        """The epochs that are done."""
        if self.result is not None:
            return len(self.result["history"])
        metrics = self.path / "metrics.jsonl"
        return metrics.read_bytes().count(b"\n") if metrics.is_file() else 0

    @property
    def changed_at(self) -> datetime:
        """When the run last wrote a result: of a finished run, its end."""
        files = (self.path / name for name in (RESULT_FILE, "metrics.jsonl", _ENVIRONMENT, RUN_FILE))
        newest = next((file for file in files if file.exists()), self.path)
        return datetime.fromtimestamp(newest.stat().st_mtime, UTC)

    @property
    def task(self) -> str:
        """The name of the task that a finished run learned."""
        return str((self.result or {}).get("task", "single-label"))  # runs of earlier releases name none

    @property
    def test_figure(self) -> tuple[str, float] | None:
        """The name and value of the most important figure on the test split, where it was measured."""
        found = (self.result or {}).get("metrics", {}).get("test", {})
        numbers = {name: value for name, value in found.items() if isinstance(value, int | float)}
        return next(((name, float(numbers[name])) for name in FIGURES if name in numbers), None)

    @property
    def dataset_name(self) -> str:
        """The name of the dataset; of several their names, joined by +."""
        return parse_joined(self.dataset).name

    @property
    def dataset_version(self) -> int:
        """The number of the dataset version; of several that of the first."""
        return int(parse_joined(self.dataset).version)

    def versions_of(self, name: str) -> set[int]:
        """Return the numbers of the versions of a dataset that the run was trained on."""
        parts = (part.reference for part in parse_joined(self.dataset).parts)
        return {int(part.version) for part in parts if part.name == name and part.version.isdecimal()}

    @property
    def manifest_sha256(self) -> str | None:
        """The SHA-256 of the manifest of the dataset version; None: a run of an early release."""
        environment = self._environment()
        return None if environment is None else environment.get("dataset", {}).get("manifest_sha256")

    @property
    def environment_file(self) -> Path:
        """The file of code, packages, devices and configuration, written when training begins."""
        return self.path / _ENVIRONMENT

    def config(self) -> dict[str, Any]:
        """Return the settings of the run, the whole ones where environment.json has them."""
        if (environment := self._environment()) is not None:
            return environment["config"]
        # Settings of reading stand in run.json only as far as they change the outcome.
        return {name: table for name, table in self.identity["config"].items() if name != "reading"}

    def _environment(self) -> _Environment | None:
        path = self.environment_file
        return read_json(path, _Environment, _AGAIN) if path.exists() else None

    def evaluation_dir(self, ref: str) -> Path:
        """Return the folder of the predictions on a dataset version or view, given as ``name@version``."""
        if ref == self.dataset:
            return self.path
        of = parse_joined(ref)
        view = "" if of.query is None else f"-view-{digest_of(of.query, length=10)}"
        return self.path / "evaluations" / f"{of.name}-v{of.version}{view}"

    def finished(self) -> dict[str, Any]:
        """Return the result.

        Raises:
            DataError: the run is unfinished.
        """
        if self.result is None:
            raise DataError(
                f"the run {self.name} is unfinished: it has no {RESULT_FILE}",
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
        from shardmill.training.results.predictions.file import (
            predictions_file,
        )  # with it come image libraries

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
    """Return the runs below a folder, sorted by name; folders without run.json are no runs.

    A damaged run is left out, with a warning that names its file.
    """
    found = []
    for name in run_names(runs):
        try:
            found.append(read_run(runs / name))
        except CorruptDataError as error:
            events.log(f"the run {name} is left out: {error}", level="warning")
    return found


def run_names(runs: Path) -> list[str]:
    """Return the names of the runs below a folder, damaged ones too, sorted."""
    return sorted(path.name for path in runs.iterdir() if is_run(path)) if runs.is_dir() else []


def open_run(named: str, runs: Path) -> RunFolder:
    """Open a run by its folder, by its name or the beginning of it, or by an alias.

    Args:
        named: the path of the folder, its name in ``runs`` or as much of it as no other run has, or an alias
            such as ``photos@production``.
        runs: the folder of the runs.

    Raises:
        NotFoundError: there is no such run or alias; suggests the near miss. CorruptDataError: it is damaged.
    """
    return read_run(run_dir(named, runs))


def run_dir(named: str, runs: Path) -> Path:
    """Return the folder of the run that ``open_run`` opens; its files are not read.

    Raises:
        NotFoundError: there is no such run or alias; suggests the near miss.
    """
    found = _dir_of(named, runs)
    if found is not None:
        return found
    if names_an_alias(named):
        return _dir_of_holder(parse_alias(named), runs)
    known = run_names(runs)
    begun = [name for name in known if named and name.startswith(named)]
    if len(begun) == 1:
        return (runs / begun[0]).resolve()
    if begun:
        raise NotFoundError(
            f"{named!r} is the beginning of {len(begun)} runs under {runs}: {', '.join(begun[:_SHOWN])}"
            + (", ..." if len(begun) > _SHOWN else ""),
            "give more of the name",
        )
    none = "there are none: `shardmill train NAME` makes one; --runs names another folder"
    remedy = near_miss(named, known) or none
    if (name := named.partition("@")[0]) != named:
        remedy = f"{named} is a version of the dataset {name}; {remedy}"
    elif Path(named).exists():
        remedy = f"{named} is here, and is not the folder of a run; {remedy}"
    raise NotFoundError(f"no training run {named!r} under {runs}", remedy)


def _dir_of_holder(alias: AliasName, runs: Path) -> Path:
    """Return the folder of the run that has an alias."""
    storage = Storage.at(runs)
    holder = AliasHistory(storage, alias).current()
    if holder is None:
        known = [str(each.name) for each in list_aliases(storage)]
        none = f"give it to a run: shardmill model promote RUN --alias {alias.alias}"
        raise NotFoundError(
            f"no run under {runs} has the alias {alias}",
            f"a version is written {alias.dataset}@{alias.alias[1:]}"
            if re.fullmatch("v[0-9]+", alias.alias)
            else near_miss(str(alias), known) or none,
        )
    found = _dir_of(holder.run, runs)
    if found is None:
        raise NotFoundError(
            f"{alias} is the run {holder.run}, which is not under {runs}",
            f"bring its folder back, or give the alias to another run: shardmill model rollback {alias}",
        )
    return found


def find_run(named: str, runs: Path) -> RunFolder | None:
    """Open a run by its folder or its whole name; None: there is none."""
    found = _dir_of(named, runs)
    return None if found is None else read_run(found)


def _dir_of(named: str, runs: Path) -> Path | None:
    return next((path.resolve() for path in (runs / named, Path(named)) if is_run(path)), None)


def is_run(path: Path) -> bool:
    """Tell whether a folder belongs to a run."""
    return (path / RUN_FILE).exists()


def read_run(path: Path) -> RunFolder:
    """Read the run in a folder.

    Raises:
        CorruptDataError: one of its files is damaged.
    """
    file = path / RESULT_FILE
    result = cast("dict[str, Any]", read_json(file, RunResult, _AGAIN)) if file.exists() else None
    return RunFolder(path, read_identity(path), result)


def read_identity(run_dir: Path) -> dict[str, Any]:
    """Return the content of the run.json of a run.

    Raises:
        CorruptDataError: it is damaged.
    """
    return cast("dict[str, Any]", read_json(run_dir / RUN_FILE, RunIdentity, _AGAIN))


def decode_result(data: bytes, named: str) -> dict[str, Any]:
    """Return the content of a result.json, whose path is ``named``.

    Raises:
        CorruptDataError: it is damaged.
    """
    return cast("dict[str, Any]", decode_json(data, RunResult, named, _AGAIN))
