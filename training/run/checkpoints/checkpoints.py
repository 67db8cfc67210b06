"""Checkpoints: all variables and the position in the data, in one file that appears whole or not at all.

A checkpoint is a NumPy ``.npz`` archive: an array for each variable of the model, the optimizer (with the
scale of the loss) and the weight averages, and ``progress``, JSON text. Random numbers need nothing more: the
state of dropout is a variable of the model, and order and augmentation are functions of the position.

The values are copied to host memory at a step boundary, and a thread writes them while training goes on. The
file is renamed to its name when it is complete and on disk, so no other marker is needed. Each array has a
checksum (CRC-32, of the ZIP format), so damage is noticed. One file holds everything, since a model that fits
into the memory of one device is small. It is independent of the devices: a run can resume with another number
of replicas.

A checkpoint holds finite numbers only. Earlier releases also wrote others; such a file is passed over.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra import progress as events
from shardmill.infra.errors import CorruptDataError, Diverged
from shardmill.infra.readable import first_of
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.local import TEMPORARY_PREFIX
from shardmill.infra.strict_json import dump_json


class _BackgroundWork:
    """At most one piece of work at a time, in the order in which it is given.

    The error of a piece of work is raised by the next call, in the thread that makes it.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._current: Future[None] | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Start ``work`` as soon as the work before it is done; wait for that."""
        self.wait()
        self._current = self._thread.submit(work)

    def wait(self) -> None:
        """Wait until all work is done, and raise its error, if any."""
        current, self._current = self._current, None
        if current is not None:
            current.result()

    def close(self) -> None:
        """Wait until all work is done, raise its error, if any, and end the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()


_NAME = re.compile(r"step-\d{9,}\.npz")
_BEST_NAME = re.compile(r"best-\d{6,}\.npz")
# Keras numbers nameless layers and seeds in the order in which a process makes them. The numbers differ if a
# model is copied for several replicas, or is not the first of its process.
_COUNTER = re.compile(r"_\d+(?=[_:]|$)")
# The errors that zipfile and NumPy raise for a damaged archive.
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, KeyError, ValueError, EOFError, NotImplementedError)
_NAMED = 3
AFTER_DIVERGENCE = (
    "lower optimizer.learning_rate, lengthen optimizer.warmup_fraction or set optimizer.clip_norm; the "
    "checkpoints before that step are sound, and stay in the folder of the run"
)


@dataclass
class Progress:
    """The position of a run, and its counts.

    Attributes:
        epoch, step: the next step to take; step = steps_per_epoch: the end of the epoch is next.
        loss_sum, score_sum, num_examples: sums over the steps of this epoch that have been reported.
        images, seconds, wait_seconds: the number of images, the time of training, and the part of it spent
            waiting for data.
        trace_bytes: length of consumed.jsonl.
        best: epoch and figures of the best model; None before the first.
        history: a row of figures for each epoch that is done.
    """

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    score_sum: float = 0.0
    num_examples: int = 0
    images: int = 0
    seconds: float = 0.0
    wait_seconds: float = 0.0
    trace_bytes: int = 0
    best: dict[str, float] | None = None
    history: list[dict[str, Any]] = field(default_factory=list)


class Checkpoints:
    """The checkpoints of one run, in a folder of their own.

    The best model is a second name (a hard link) of the checkpoint of its epoch. It is named by epoch,
    because a resumed attempt may choose another best epoch than the killed one.
    """

    def __init__(self, folder: Storage, keep: int) -> None:
        self._folder = folder
        self._keep = keep
        self._writing = _BackgroundWork("checkpoints")

    def save(
        self,
        run_step: int,
        variables: list[Any],
        progress: Progress,
        before: Callable[[], object] | None = None,
    ) -> None:
        """Copy all values, and write them in the background as the checkpoint of a step.

        If the epoch that has just ended is the best so far, the checkpoint becomes the best model too.

        Args:
            run_step: the number of steps done.
            variables: all variables; first those that ``restore_best`` reads.
            progress: the position of the run.
            before: is called in the background before the file is written.

        Raises:
            Diverged: a value is not finite.
            StorageError: this or the previous checkpoint cannot be written.
        """
        arrays = {_key(index, variable): variable.numpy() for index, variable in enumerate(variables)}
        check_finite(zip(variables, arrays.values(), strict=True), run_step)
        arrays["progress"] = np.frombuffer(dump_json(asdict(progress)).encode(), dtype=np.uint8)
        best = progress.best
        is_best = best is not None and progress.step == 0 and best["epoch"] == progress.epoch

        def write() -> None:
            if before is not None:
                before()
            name = f"step-{run_step:09d}.npz"
            if is_best:
                # First: a checkpoint that names a best model must find it, whenever the process is killed.
                self._write(_best_name(progress.epoch), arrays)
                self._link(_best_name(progress.epoch), name)
            else:
                self._write(name, arrays)
            self._prune(name)

        self._writing.start(write)

    def wait(self) -> None:
        """Wait until all checkpoints are on disk.

        Raises:
            StorageError: one cannot be written.
        """
        self._writing.wait()

    def close(self) -> None:
        """Wait until all checkpoints are on disk, and end the thread that writes them."""
        self._writing.close()

    def _write(self, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        with self._folder.atomic_writer(name) as stream:
            np.savez(stream, allow_pickle=False, **arrays)

    def _link(self, name: str, other: str) -> None:
        """Give a file another name, too; copy it where links are not possible."""
        source, target = self._folder.local_path(name), self._folder.local_path(other)
        assert source is not None
        assert target is not None, "the folder of a run is local"
        temporary = target.with_name(f"{TEMPORARY_PREFIX}{target.name}")
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        try:
            os.link(source, temporary)
        except OSError:
            shutil.copyfile(source, temporary)
        temporary.replace(target)

    def _prune(self, latest: str) -> None:
        """Remove all but the latest checkpoints, and the best models that none of them names.

        Later files than ``latest`` were passed over when the run went on: they count no more.
        """
        names = self._names()
        kept = names[: names.index(latest) + 1][-self._keep :]
        for name in names:
            if name not in kept:
                self._folder.delete(name)
        wanted = {self._best_of(name) for name in kept}
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

        A file that storage has damaged, or that holds a number which is not finite, is passed over with a
        warning, for the one before it.
        """
        self.wait()
        for name in reversed(self._names()):
            try:
                return self._restore(name, variables)
            except CorruptDataError as error:
                events.log(f"{error.message}; going back to the checkpoint before it", level="warning")
        return None

    def restore_best(self, epoch: int, variables: list[Any]) -> Progress:
        """Restore the best model, that of ``epoch``: the first of the variables that ``save`` got.

        Raises:
            NotFoundError: there is none.
            CorruptDataError: it is damaged, or holds a number that is not finite.
        """
        self.wait()
        return self._restore(_best_name(epoch), variables)

    def _names(self, pattern: re.Pattern[str] = _NAME) -> list[str]:
        paths = [entry.path for entry in self._folder.list_files(recursive=False)]
        return sorted((path for path in paths if pattern.fullmatch(path)), key=lambda path: (len(path), path))

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
        bad = _not_finite(zip(variables, arrays, strict=True))
        if bad:
            raise CorruptDataError(
                f"checkpoint {where} is of a training that had diverged: {_in_words(bad)}",
                "set run.fresh=true to start anew",
            )
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)
        return Progress(**json.loads(text))


def check_finite(arrays: Iterable[tuple[Any, npt.NDArray[Any]]], run_step: int) -> None:
    """Check the values of a training after a step.

    Args:
        arrays: variables with their values.
        run_step: the number of steps done.

    Raises:
        Diverged: a value is infinite or not a number.
    """
    bad = _not_finite(arrays)
    if bad:
        raise Diverged(
            f"the training diverged by step {run_step} of the run: {_in_words(bad)}", AFTER_DIVERGENCE
        )


def _not_finite(arrays: Iterable[tuple[Any, npt.NDArray[Any]]]) -> list[str]:
    """Return the names of variables with a value that is infinite or not a number."""
    return [variable.path for variable, array in arrays if not np.isfinite(array).all()]


def _in_words(names: list[str]) -> str:
    return f"{first_of(names, _NAMED)} became infinite or not a number"


def _key(index: int, variable: Any) -> str:
    """Return the name of a variable in the archive: number and path, since paths need not be unique."""
    path = _COUNTER.sub("", variable.path.replace("/", ":"))
    return f"{index:05d}:{path}"


def _best_name(epoch: int) -> str:
    return f"best-{epoch:06d}.npz"


def _check_shape(variable: Any, array: npt.NDArray[Any], where: str) -> None:
    if tuple(variable.shape) != array.shape:
        raise CorruptDataError(
            f"{where}: {variable.path} has shape {array.shape}, the model needs {tuple(variable.shape)}",
            "set run.fresh=true to start anew",
        )
