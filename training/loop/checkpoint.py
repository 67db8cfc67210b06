"""Checkpoints: all variables and the position in the data, in one file that appears whole or not at all.

A checkpoint is a NumPy ``.npz`` archive: an array for each variable of the model and of the optimizer, and
``progress``, JSON text. It is independent of the devices: a run can resume with another number of replicas.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
import zlib
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from infra import progress as events
from infra.errors import CorruptDataError
from infra.storage.filesystem import Storage

_NAME = re.compile(r"step-\d{9,}\.npz")
_BEST_NAME = re.compile(r"best-\d{6,}\.npz")
# Keras numbers nameless layers and seeds in the order in which a process makes them. The numbers differ if a
# model is copied for several replicas, or is not the first of its process.
_COUNTER = re.compile(r"_\d+(?=[_/]|$)")
# The errors that zipfile and NumPy raise for a damaged archive.
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, KeyError, ValueError, EOFError, NotImplementedError)


@dataclass
class Progress:
    """The position of a run, and its counts.

    Attributes:
        epoch, step: the next step to take; step = steps_per_epoch: the end of the epoch is next.
        loss_sum, num_correct, num_examples: sums over the steps of this epoch.
        images, seconds, wait_seconds: the number of images, the time of training, and the part of it spent
            waiting for data.
        trace_bytes: length of consumed.jsonl.
        best: epoch, accuracy and loss of the best checkpoint; None before the first.
        history: a row of figures for each epoch that is done.
    """

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    num_correct: int = 0
    num_examples: int = 0
    images: int = 0
    seconds: float = 0.0
    wait_seconds: float = 0.0
    trace_bytes: int = 0
    best: dict[str, float] | None = None
    history: list[dict[str, Any]] = field(default_factory=list)


class Checkpoints:
    """The checkpoints of one run, in a folder of their own.

    Best models are named by epoch, because a resumed attempt may choose another best epoch than the killed
    one.
    """

    def __init__(self, folder: Storage, keep: int) -> None:
        self._folder = folder
        self._keep = keep

    def save(self, run_step: int, variables: list[Any], progress: Progress) -> None:
        """Write the checkpoint of a step, and remove the oldest ones."""
        self._write(f"step-{run_step:09d}.npz", variables, progress)
        self._prune()

    def save_best(self, epoch: int, variables: list[Any], progress: Progress) -> None:
        """Write the model's variables of the epoch that is the best so far; ``save`` must follow."""
        self._write(_best_name(epoch), variables, progress)

    def _prune(self) -> None:
        """Remove all but the latest checkpoints, and the best models that none of them names."""
        names = self._names()
        for name in names[: -self._keep]:
            self._folder.delete(name)
        wanted = {self._best_of(name) for name in names[-self._keep :]}
        for name in self._names(_BEST_NAME):
            if name not in wanted:
                self._folder.delete(name)

    def _best_of(self, name: str) -> str | None:
        try:
            with self._folder.open_input(name) as stream, np.load(stream, allow_pickle=False) as archive:
                best = json.loads(bytes(archive["progress"]))["best"]
        except _DAMAGE:
            return None
        return None if best is None else _best_name(int(best["epoch"]))

    def restore_latest(self, variables: list[Any]) -> Progress | None:
        """Restore the latest checkpoint; return None if there is none.

        A file that storage has damaged is passed over with a warning, for the one before it.
        """
        for name in reversed(self._names()):
            try:
                return self._restore(name, variables)
            except CorruptDataError as error:
                events.log(f"{error.message}; going back to the checkpoint before it", level="warning")
        return None

    def restore_best(self, epoch: int, variables: list[Any]) -> Progress:
        """Restore the best model, that of ``epoch``.

        Raises:
            NotFoundError: there is none. CorruptDataError: it is damaged.
        """
        return self._restore(_best_name(epoch), variables)

    def _names(self, pattern: re.Pattern[str] = _NAME) -> list[str]:
        paths = [entry.path for entry in self._folder.list_files(recursive=False)]
        return sorted((path for path in paths if pattern.fullmatch(path)), key=lambda path: (len(path), path))

    def _write(self, name: str, variables: list[Any], progress: Progress) -> None:
        arrays = {_key(index, variable): variable.numpy() for index, variable in enumerate(variables)}
        text = np.frombuffer(json.dumps(asdict(progress)).encode(), dtype=np.uint8)
        with self._folder.atomic_writer(name) as stream:
            np.savez(stream, allow_pickle=False, progress=text, **arrays)

    def _restore(self, name: str, variables: list[Any]) -> Progress:
        where = f"{self._folder.uri}/{name}"
        try:
            with self._folder.open_input(name) as stream, np.load(stream, allow_pickle=False) as archive:
                arrays = [archive[_key(index, variable)] for index, variable in enumerate(variables)]
                text = bytes(archive["progress"])
        except _DAMAGE as error:
            raise CorruptDataError(
                f"checkpoint {where} cannot be read: {error}", "set run.fresh=true to start anew"
            ) from error
        for variable, array in zip(variables, arrays, strict=True):
            _check_shape(variable, array, where)
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)
        return Progress(**json.loads(text))


def _key(index: int, variable: Any) -> str:
    """Return the name of a variable in the archive: number and path, since paths need not be unique."""
    path = _COUNTER.sub("", variable.path)
    return f"{index:05d}:{path}".replace("/", ":")


def _best_name(epoch: int) -> str:
    return f"best-{epoch:06d}.npz"


def _check_shape(variable: Any, array: npt.NDArray[Any], where: str) -> None:
    if tuple(variable.shape) != array.shape:
        raise CorruptDataError(
            f"{where}: {variable.path} has shape {array.shape}, the model needs {tuple(variable.shape)}",
            "set run.fresh=true to start anew",
        )
