"""A task whose numbers do what they are told: finish, fail, crash, hang, or take memory."""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from shardmill.beam_jobs.config import RunnerConfig
from shardmill.beam_jobs.execution.pool.limits import OWN_BYTES, MemoryRanOut
from shardmill.beam_jobs.execution.pool.notes import being_processed, counting_files
from shardmill.beam_jobs.execution.pool.shares import memory_for
from shardmill.beam_jobs.execution.runners import run_task
from shardmill.beam_jobs.execution.task import Limits, Task
from shardmill.beam_jobs.schemas import FileRef
from shardmill.infra.errors import StorageError
from shardmill.infra.processes.process import exit_at_once, run_main
from tests.samples.images.photos import jpeg

MIB = 1 << 20


def _grow() -> None:
    held = []
    while True:
        held.append(b"x" * (16 * MIB))
        time.sleep(0.01)


def _fail() -> None:
    raise StorageError("it cannot be written", "make room")


def _defect() -> None:
    raise KeyError("no such key")


def _die_with_memory() -> None:
    with memory_for(1 << 60):
        os.kill(os.getpid(), signal.SIGKILL)


def _take_memory() -> None:
    with memory_for(1 << 60):
        time.sleep(0.05)


def _count() -> None:
    list(counting_files([FileRef(f"{number}.jpg", 1, 2) for number in range(3)]))
    time.sleep(600)


DEEDS: Mapping[str, Callable[[], object]] = {
    "abort": os.abort,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: sys.exit(0),
    "leave": lambda: os._exit(0),
    "hang": lambda: ctypes.PyDLL(None).sleep(10**6),  # in C, holding the interpreter's lock
    "grow": _grow,
    "die_with_memory": _die_with_memory,
    "take_memory": _take_memory,
    "count": _count,  # three files, and then no more
    "sleep": lambda: time.sleep(600),
    "fail": _fail,
    "defect": _defect,
}


@dataclass(frozen=True)
class Deeds(Task):
    """Writes a file for each number that is done, named after it and its process.

    Attributes:
        folder: of the files.
        deeds: number -> what it does first, while "<number>.jpg" is being processed.
        guilty: whether that file is to blame, and so left out when it is submitted again.
        once: whether a deed is done only once.
        seconds: that a file may take.
    """

    name: ClassVar[str] = "Deeds"

    folder: Path
    deeds: Mapping[int, str] = field(default_factory=dict)
    guilty: bool = True
    once: bool = False
    seconds: float = 600.0

    @property
    def limits(self) -> Limits:
        """Of a file."""
        return Limits(self.seconds, 64 * MIB - OWN_BYTES if "grow" in self.deeds.values() else 1 << 40)

    def open(self) -> None:
        """Note the process."""
        (self.folder / f"process-{os.getpid()}").touch()

    def do(self, number: int) -> None:
        """Do the deed, then write the file."""
        file = self.file_of(number, 0)
        deed = self.deeds.get(number)
        if deed is not None and not self._verdict(file).exists() and not (self.once and self._tries(number)):
            (self.folder / f"try-{number}-{time.monotonic_ns()}").touch()
            if deed == "run_short":
                raise MemoryRanOut(file)
            with being_processed():
                DEEDS[deed]()
        (self.folder / f"done-{number}-{os.getpid()}-{time.monotonic_ns()}").touch()

    def file_of(self, item: int, number: int) -> FileRef:
        """Return the only file of a number."""
        return FileRef(f"{item}.jpg", 1, 2)

    def find_culprit(self, file: FileRef) -> bool:
        """Write a verdict where the files are guilty."""
        if self.guilty:
            self._verdict(file).touch(exist_ok=False)
        return self.guilty

    def _verdict(self, file: FileRef) -> Path:
        return self.folder / f"verdict-{file.uri}"

    def _tries(self, number: int) -> int:
        return len(list(self.folder.glob(f"try-{number}-*")))


def done(folder: Path) -> list[int]:
    """The numbers that were done, each as often as it was."""
    return sorted(int(path.name.split("-")[1]) for path in folder.glob("done-*"))


def processes(folder: Path) -> set[int]:
    """The processes that opened the task."""
    return {int(path.name.split("-")[1]) for path in folder.glob("process-*")}


def main() -> int:
    """Run the task on the embedded runner: NUMBERS PROCESSES FOLDER [NUMBER=DEED ...]."""
    parser = argparse.ArgumentParser()
    parser.add_argument("numbers", type=int)
    parser.add_argument("processes", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("deeds", nargs="*")
    told = parser.parse_args()
    deeds = {int(number): deed for number, deed in (text.split("=") for text in told.deeds)}
    task = Deeds(told.folder, deeds)
    print(run_task(task, range(told.numbers), RunnerConfig(processes=told.processes)))
    return 0


class CrashingReader:
    """Reads images and decodes them, and ends its process at those of some names."""

    decodes = True

    def __init__(self, at: str) -> None:
        self._at = at

    def read(self, file: FileRef) -> bytes:
        """Return a photograph."""
        if file.uri == self._at:
            os.kill(os.getpid(), signal.SIGSEGV)
        return jpeg(int(file.uri))


if __name__ == "__main__":
    exit_at_once(run_main(main))
