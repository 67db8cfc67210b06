"""A Prefect server or worker as a child process: start, wait until healthy, stop with its whole tree."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import psutil

from infra.errors import EnvironmentFault
from infra.process import LIFELINE_FD
from infra.process_trees import kill_tree

# The first start of a home makes the database of its history: 7 s here on an idle machine.
START_SECONDS = 120.0

_POLL_SECONDS = 0.05
_FLOW_RUN_GRACE_SECONDS = 20.0


class Service:
    """A service's process, and the lifeline that ends it when this process is gone, however it went."""

    def __init__(self, arguments: Sequence[str], *, log_path: Path, env: Mapping[str, str]) -> None:
        self.log_path = log_path
        lifeline_read, self._lifeline = os.pipe()
        try:
            with log_path.open("ab") as log:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "flows.service_process", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(lifeline_read,),
                    start_new_session=True,
                    env={**os.environ, **env, LIFELINE_FD: str(lifeline_read)},
                )
        finally:
            os.close(lifeline_read)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End it and all its descendants."""
        if self._lifeline >= 0:
            kill_tree(self.process)
            os.close(self._lifeline)
            self._lifeline = -1

    def check(self, what: str) -> None:
        """Raises EnvironmentFault, with the end of the log, where the service has ended on its own."""
        status = self.process.poll()
        if status is not None:
            tail = "\n".join(self.log_path.read_text("utf-8", "replace").splitlines()[-12:])
            raise EnvironmentFault(
                f"{what} ended with status {status}; it last said:\n{tail}", f"see {self.log_path}"
            )


class Server(Service):
    """Prefect's API on this machine."""

    def __init__(self, host: str, port: int, *, brief: bool, log_path: Path, env: Mapping[str, str]) -> None:
        self.ui_url = f"http://{host}:{port}"
        self.api_url = f"{self.ui_url}/api"
        arguments = ["server", host, str(port), *(["--brief"] if brief else [])]
        super().__init__(arguments, log_path=log_path, env={**env, "PREFECT_API_URL": self.api_url})

    def wait_until_healthy(self) -> None:
        """Return when it answers.

        Raises:
            EnvironmentFault: it ended, or did not answer in time.
        """
        deadline = time.monotonic() + START_SECONDS
        while not answers(self.api_url):
            self.check("Prefect's server")
            if time.monotonic() > deadline:
                raise EnvironmentFault(
                    f"Prefect's server did not answer within {START_SECONDS:.0f} s", f"see {self.log_path}"
                )
            time.sleep(_POLL_SECONDS)


class Worker(Service):
    """The process worker of `shardmill up`."""

    def __init__(self, pool: str, *, log_path: Path, env: Mapping[str, str]) -> None:
        super().__init__(["worker", pool], log_path=log_path, env=env)

    def stop(self) -> None:
        """Let the flow runs end first, so that they can say that they were stopped, then the worker."""
        with contextlib.suppress(psutil.NoSuchProcess):
            flow_runs = psutil.Process(self.process.pid).children()
            for flow_run in flow_runs:
                with contextlib.suppress(psutil.NoSuchProcess):
                    flow_run.terminate()
            psutil.wait_procs(flow_runs, timeout=_FLOW_RUN_GRACE_SECONDS)
        super().stop()


def answers(api_url: str, timeout_seconds: float = 2.0) -> bool:
    """Whether a Prefect API is at ``api_url`` (an answer that asks for a password counts as one)."""
    # Loopback must not go through a proxy that the environment names for other hosts.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({} if is_loopback(api_url) else None))
    try:
        with opener.open(f"{api_url.rstrip('/')}/health", timeout=timeout_seconds) as answer:
            return bool(answer.read(100).strip() == b"true")
    except urllib.error.HTTPError as error:
        error.close()
        return error.code in (401, 403)
    except (OSError, ValueError, http.client.HTTPException):
        return False


def is_loopback(url: str) -> bool:
    """Whether ``url`` names this machine itself."""
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def try_to_listen(host: str, port: int) -> None:
    """Raises OSError where a server could not listen."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        probe.listen()
