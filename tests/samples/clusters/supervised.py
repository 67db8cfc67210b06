"""Supervised processes: each has a log, is started again when it dies, and dies with its parent."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shardmill.infra.errors import EnvironmentFault
from shardmill.infra.processes.process import describe_status, die_at_once_with_parent
from shardmill.infra.processes.trees import kill_tree, wait_for_end

LOOK_SECONDS = 0.2
RESTART_SECONDS = 1.0  # between a death and the next start
MAX_EARLY_DEATHS = 5  # in a row
_EARLY_SECONDS = 20.0
_GRACE_SECONDS = 5.0
_LAST_CHARACTERS = 2000


@dataclass(frozen=True)
class Service:
    """A program that has to run all the time.

    Attributes:
        name: of the service and of its log.
        argv: the command.
        address: (host, port) at which it listens once it is ready.
        env: variables on top of this process's own.
    """

    name: str
    argv: Sequence[str]
    address: tuple[str, int] | None = None
    env: Mapping[str, str] = field(default_factory=dict)


class Supervisor:
    """Keeps services running until it is closed.

    Create it and call it on one thread that lives as long as the services: the kernel ends a service when
    the thread that started it ends, also when this process is killed.

    Args:
        log_folder: receives ``NAME.log`` of each service; a service that is started again appends to it.
        say: is told each start and each death.
    """

    def __init__(self, log_folder: Path, say: Callable[[str], None]) -> None:
        self._log_folder = log_folder
        self._say = say
        self._running: list[_Running] = []
        log_folder.mkdir(parents=True, exist_ok=True)

    def start(self, service: Service) -> None:
        """Start a service."""
        one = _Running(service, self._log_folder / f"{service.name}.log")
        one.start()
        self._running.append(one)
        self._say(f"{service.name}: started as process {one.pid}")

    @property
    def pids(self) -> dict[str, int]:
        """The process of each service."""
        return {one.service.name: one.pid for one in self._running}

    def look(self) -> bool:
        """Start dead services again; return whether any was.

        Raises:
            EnvironmentFault: a service died several times right after its start.
        """
        restarted = False
        for one in self._running:
            status = one.status()
            if status is None:
                continue
            if one.died_at is None:
                one.note_death(status, self._say)
            elif time.monotonic() - one.died_at >= RESTART_SECONDS:
                one.start()
                restarted = True
                self._say(f"{one.service.name}: started again as process {one.pid}")
        return restarted

    def wait_until_ready(self, seconds: float) -> None:
        """Wait until every service listens at its address.

        Raises:
            EnvironmentFault: one does not in this time, or keeps dying.
        """
        deadline = time.monotonic() + seconds
        for one in self._running:
            while one.service.address is not None and not _listens(*one.service.address):
                self.look()
                if time.monotonic() > deadline:
                    raise EnvironmentFault(
                        f"{one.service.name} does not listen at {_text(one.service.address)} after "
                        f"{seconds:g} seconds; it last said:\n{one.last_words()}",
                        f"see {one.log}",
                    )
                time.sleep(LOOK_SECONDS)

    def close(self) -> None:
        """End all services, the last one first."""
        for one in reversed(self._running):
            one.end()
        self._running.clear()


class _Running:
    """A service and its process."""

    def __init__(self, service: Service, log: Path) -> None:
        self.service = service
        self.log = log
        self.died_at: float | None = None
        self._early_deaths = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        with self.log.open("ab") as stream:
            try:
                self._process = subprocess.Popen(
                    self.service.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env={**os.environ, **self.service.env},
                    preexec_fn=die_at_once_with_parent,
                )
            except OSError as error:
                raise EnvironmentFault(f"{self.service.name} cannot be started: {error}") from error
        self._started_at = time.monotonic()
        self.died_at = None

    def status(self) -> int | None:
        return self._process.poll()

    def note_death(self, status: int, say: Callable[[str], None]) -> None:
        self.died_at = time.monotonic()
        self.end()  # its child processes
        how = describe_status(status)
        say(f"{self.service.name}: ended by {how}")
        is_early = self.died_at - self._started_at < _EARLY_SECONDS
        self._early_deaths = self._early_deaths + 1 if is_early else 0
        if self._early_deaths == MAX_EARLY_DEATHS:
            raise EnvironmentFault(
                f"{self.service.name} ended {MAX_EARLY_DEATHS} times right after its start, the last time by "
                f"{how}; it last said:\n{self.last_words()}",
                f"see {self.log}",
            )

    def end(self) -> None:
        if wait_for_end(self._process, 0):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            kill_tree(self._process, _GRACE_SECONDS)

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-_LAST_CHARACTERS:].strip()


def _listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


def _text(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


def require_free(host: str, port: int, option: str) -> None:
    """Check that a port can be listened at.

    Raises:
        EnvironmentFault: another process has it, or the address is not one of this machine.
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise EnvironmentFault(
                f"nothing can listen at {host}:{port}: {error.strerror}",
                f"give another port with {option}; {option} 0 takes a free one",
            ) from error
