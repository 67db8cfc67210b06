"""Read the training runs in a folder. A damaged run folder becomes a row with the error.

The runs of an object store are copied to this machine, for the page and TensorBoard, which read files.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from shardmill.flows.flow_runs.showing.training_curve import points_of
from shardmill.flows.page.reading.remembered import ForSeconds, Remembered
from shardmill.infra.errors import NotFoundError, ShardmillError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import is_text, public_location
from shardmill.training.metrics.figures import FIGURES
from shardmill.training.results.run_files.curve import CURVE_FILE
from shardmill.training.results.run_files.run_folder import RunFolder, is_run, read_run
from shardmill.training.run.files.stored import fetch_runs, is_in_store, local_folder

LOG = logging.getLogger("shardmill.page")

_LEAST_SECONDS = 10.0  # trainings upload as often
_PAUSE_FACTOR = 4  # with many runs, copying takes at most a fifth of the time
_STOP_SECONDS = 5.0


_NO_FIGURES = frozenset({"time", "step", "epoch", "rank"})


class Point(NamedTuple):
    """A point of a curve: the step of the run, and the value."""

    step: int
    value: float


# Series, ``train``, ``validation`` or ``rank 0``, -> figure -> its points by step.
Curves = Mapping[str, Mapping[str, list[Point]]]


def _read_curves(run_dir: Path) -> Curves:
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
        self.copy = _RunsCopy(runs) if is_in_store(runs) else None
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
        return self._row(self.path(name), _held_locks(self.folder / ".locks"))

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
        locked = _held_locks(self.folder / ".locks")
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
        return _read_curves(path)
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


class _RunsCopy:
    """Copies the results and the logs of all runs of a store to this machine, again and again, on a thread.

    Attributes:
        uri: the folder of the runs, without credentials.
        problem: why the copy is not fresh, for people; None: it is.
    """

    def __init__(self, runs: str) -> None:
        self.uri = public_location(runs)
        self.problem: str | None = f"The runs of {self.uri} are being copied to this machine: reload soon"
        self._runs = runs
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._copy, name="shardmill-runs-copy", daemon=True)

    def start(self) -> None:
        """Begin to copy."""
        self._thread.start()

    def close(self) -> None:
        """Stop soon; a copying that takes longer ends with the process."""
        self._stopped.set()
        self._thread.join(_STOP_SECONDS)

    def _copy(self) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            began = time.monotonic()
            try:
                fetch_runs(self._runs, with_logs=True)
                self.problem = None
            except Exception as error:  # noqa: BLE001  the next copying may succeed
                LOG.warning("cannot copy the runs of %s: %s", self.uri, error)
                self.problem = (
                    f"The runs of {self.uri} cannot be copied to this machine; "
                    f"those that were copied before are shown: {error}"
                )
            pause = max(_LEAST_SECONDS, _PAUSE_FACTOR * (time.monotonic() - began))


_PROC_LOCKS = Path("/proc/locks")


def _held_locks(folder: Path) -> Mapping[str, bool]:
    """Return name of a file -> whether a process of this machine holds a lock on it.

    Locks are looked at, not tried: that would take a lock for a moment, and a training that begins at that
    moment would be refused. Empty where the kernel does not tell (not Linux), or without the folder.
    """
    try:
        held = {_inode(line) for line in _PROC_LOCKS.read_text("ascii", "replace").splitlines()}
        with os.scandir(folder) as entries:
            return {entry.name: entry.inode() in held for entry in entries}
    except OSError:
        return {}


def _inode(line: str) -> int:
    """Return the inode of a line such as ``1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF``; -1 if none."""
    parts = line.split()
    # A line with an arrow tells of a process that waits for the lock.
    place = parts[5] if len(parts) > 5 and parts[1] != "->" else ""
    return int(place.rpartition(":")[2]) if place.count(":") == 2 else -1


# What a point tells besides figures.
