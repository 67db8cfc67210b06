"""Read the training runs in a folder. A damaged run folder becomes a row with the error."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from shardmill.flows.flow_runs.showing.training_curve import points_of
from shardmill.flows.page.reading.remembered import ForSeconds, Remembered
from shardmill.flows.page.reading.runs_copy import RunsCopy, held_locks
from shardmill.infra.errors import NotFoundError, ShardmillError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import is_text
from shardmill.training.metrics.figures import FIGURES
from shardmill.training.results.run_files.curve import CURVE_FILE
from shardmill.training.results.run_files.run_folder import RunFolder, is_run, read_run
from shardmill.training.run.files.stored import is_in_store, local_folder

# What a point tells besides figures.
_NO_FIGURES = frozenset({"time", "step", "epoch", "rank"})


class Point(NamedTuple):
    """A point of a curve: the step of the run, and the value."""

    step: int
    value: float


# Series, ``train``, ``validation`` or ``rank 0``, -> figure -> its points by step.
Curves = Mapping[str, Mapping[str, list[Point]]]


def read_curves(run_dir: Path) -> Curves:
    """Return the curves of a run.

    Raises:
        CorruptDataError: the figures of its epochs are damaged.
    """
    found: dict[str, dict[str, list[Point]]] = {}
    for point in points_of(run_dir):
        series = f"rank {point['rank']}" if "rank" in point else str(point.get("split", "train"))
        for name, value in point.items():
            is_figure = isinstance(value, int | float) and not isinstance(value, bool)
            if is_figure and name not in _NO_FIGURES and math.isfinite(value):
                points = found.setdefault(series, {}).setdefault(name, [])
                points.append(Point(int(point["step"]), float(value)))
    return found


TRAINING, FINISHED, UNFINISHED, BROKEN = "training", "finished", "unfinished", "broken"

_RUNS_KEPT, _CURVES_KEPT = 20_000, 64
_LIST_SECONDS = 2.0
# The lock of a run on another machine or in another container cannot be seen: its files tell.
_QUIET_SECONDS = 60.0
_CURVES = (CURVE_FILE, "metrics.jsonl")
_STAMPED = ("run.json", "result.json", "metrics.jsonl")


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run, as lists of runs show it.

    Attributes:
        name: name of the folder.
        state: TRAINING, FINISHED, UNFINISHED or BROKEN.
        changed: when its files were last written (seconds since 1970).
        dataset: the version that it was trained on, as ``name@version``; of a view with its query.
        model, task: their names.
        epochs_done, epochs: done, and wanted.
        figures: figures of the test split, by name.
        images_per_second: rate of a finished run.
        export: the folder of its model; None: it has none.
        problem: why its files cannot be read.
    """

    name: str
    state: str
    changed: float
    dataset: str = ""
    model: str = ""
    task: str = ""
    epochs_done: int = 0
    epochs: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    images_per_second: float | None = None
    export: str | None = None
    problem: str | None = None


class Runs:
    """Reads the runs for the page; remembers rows and curves as long as their files stay the same.

    Attributes:
        folder: on this machine; of an object store, a copy.
        copy: keeps the copy fresh; None: the runs are on this machine.
        uri: the place of the runs, without credentials.
    """

    def __init__(self, runs: str) -> None:
        self.folder = local_folder(runs)
        self.copy = RunsCopy(runs) if is_in_store(runs) else None
        self.uri = self.copy.uri if self.copy else str(self.folder)
        self.storage = Storage.at(self.folder)
        self._rows_by_name: Remembered[RunRow] = Remembered(_RUNS_KEPT)
        self._curves: Remembered[Curves] = Remembered(_CURVES_KEPT)
        self._listed = ForSeconds(_LIST_SECONDS, self._list_rows)

    def rows(self) -> list[RunRow]:
        """Return all runs, sorted by name."""
        return self._listed.get()

    def live(self) -> list[RunRow]:
        """Return the runs that train now, the newest first."""
        found = [row for row in self.rows() if row.state == TRAINING]
        return sorted(found, key=lambda row: -row.changed)

    def row(self, name: str) -> RunRow:
        """Return one run.

        Raises:
            NotFoundError: there is no run of this name directly in the folder.
        """
        return self._row(self.path(name), held_locks(self.folder / ".locks"))

    def path(self, name: str) -> Path:
        """Return the folder of a run.

        Raises:
            NotFoundError: there is no run of this name directly in the folder.
        """
        path = self.folder / name
        # The name comes from an address: it must not lead out of the folder.
        is_name = bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name
        if not is_name or not is_text(name) or not is_run(path):
            raise NotFoundError(f"no training run {name!r} under {self.uri}", "see the list of all runs")
        return path

    def open(self, name: str) -> RunFolder:
        """Open a run.

        Raises:
            NotFoundError: there is no such run. CorruptDataError: its files are damaged.
        """
        return read_run(self.path(name))

    def curves(self, name: str) -> Curves:
        """Return the curves of a run so far; none where their files are damaged.

        Raises:
            NotFoundError: there is no such run.
        """
        path = self.path(name)
        stamp = tuple(_stamp(path / file) for file in _CURVES)
        return self._curves.get(name, stamp, lambda: _curves_of(path))

    def _list_rows(self) -> list[RunRow]:
        try:
            folders = sorted(path for path in self.folder.iterdir() if not path.name.startswith("."))
        except OSError:
            return []
        locked = held_locks(self.folder / ".locks")
        return [self._row(path, locked) for path in folders if is_run(path)]

    def _row(self, path: Path, locked: Mapping[str, bool]) -> RunRow:
        stamp = tuple(_stamp(path / name) for name in _STAMPED)
        row = self._rows_by_name.get(path.name, stamp, lambda: _read_row(path))
        if row.state == UNFINISHED and _trains(path, row, locked):
            return replace(row, state=TRAINING)
        return row


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _trains(path: Path, row: RunRow, locked: Mapping[str, bool]) -> bool:
    """Tell whether an unfinished run trains: its lock is held, or its files change."""
    if locked.get(path.name):
        return True
    curve = _stamp(path / CURVE_FILE)
    return time.time() - max(row.changed, curve[0] / 1e9 if curve else 0.0) < _QUIET_SECONDS


def _curves_of(path: Path) -> Curves:
    try:
        return read_curves(path)
    except (ShardmillError, KeyError, TypeError, ValueError, AttributeError, OSError, RecursionError):
        return {}  # the row of the run shows the error


def _read_row(path: Path) -> RunRow:
    changed = max((found[0] for name in _STAMPED if (found := _stamp(path / name))), default=0) / 1e9
    try:
        return _row_of(read_run(path), changed)
    except ShardmillError as error:
        problem = str(error)
    except (KeyError, TypeError, ValueError, AttributeError, OSError, RecursionError) as error:
        problem = f"its files are damaged: {error!r}"
    return RunRow(path.name, BROKEN, changed, problem=problem)


def _row_of(run: RunFolder, changed: float) -> RunRow:
    result: Mapping[str, Any] = run.result or {}
    test = result.get("metrics", {}).get("test", {})
    rate = result.get("images_per_second")
    return RunRow(
        run.name,
        UNFINISHED if run.result is None else FINISHED,
        changed,
        run.dataset,
        run.model,
        run.task,
        run.epochs_done,
        run.epochs_wanted,
        {name: float(test[name]) for name in FIGURES if isinstance(test.get(name), int | float)},
        float(rate) if isinstance(rate, int | float) else None,
        str(result["export_dir"]) if result.get("export_dir") else None,
    )
