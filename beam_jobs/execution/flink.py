"""Beam on Apache Flink: the options of a job, and the jobs on the cluster.

A pipeline goes to Beam's job server, which gives it to the Flink cluster. Flink then runs it on its own, and
goes on when the job server or the command is killed. So jobs are named after their work, and the same command
finds them again. It cancels those that an earlier run left behind, and its own when it fails or is stopped.
"""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator
from typing import Any

from shardmill.beam_jobs.config import FlinkConfig
from shardmill.infra.errors import ConfigError, EnvironmentFault
from shardmill.infra.processes.ports import open_url
from shardmill.infra.progress import log

DEFAULT_JOB_PORT = 8099

_CALL_SECONDS = 10.0
_CANCEL_SECONDS = 60.0  # a TaskManager that hangs is given up by Flink only after a while
_LOOK_SECONDS = 0.2
_ENDED = ("FINISHED", "FAILED", "CANCELED")
_NO_SUCH_JOB, _HAS_ENDED = 404, 409
_EXAMPLE = "for example 'flink.example.org:8081'"


def check_flink(flink: FlinkConfig) -> None:
    """Check that the addresses are there and look like addresses.

    Raises:
        ConfigError: one is missing or wrong.
    """
    if not flink.master:
        raise ConfigError(
            'runner.flink.master is missing: runner.name = "flink" needs the REST address of the JobManager',
            f"set it, or give --flink-master; {_EXAMPLE}",
        )
    for name, address in (
        ("master", flink.master),
        ("job_endpoint", job_endpoint(flink)),
        ("pool_endpoint", flink.pool_endpoint),
    ):
        host, _, port = address.rpartition(":")
        if not host or "/" in host or not port.isdigit():
            raise ConfigError(
                f"runner.flink.{name} = {address!r} is not HOST:PORT",
                _EXAMPLE,
            )


def job_endpoint(flink: FlinkConfig) -> str:
    """HOST:PORT of Beam's job server."""
    return flink.job_endpoint or f"{flink.master.rpartition(':')[0]}:{DEFAULT_JOB_PORT}"


def flink_options(flink: FlinkConfig, name: str, parallelism: int, given: Collection[str]) -> list[str]:
    """Options of Beam for a pipeline on Flink.

    Args:
        flink: the cluster.
        name: name of the job.
        parallelism: tasks at a time.
        given: names of options that the user gives, which are left out.
    """
    options = {
        "flink_master": flink.master,
        "job_endpoint": job_endpoint(flink),
        "job_name": name,
        "parallelism": str(parallelism),
        "sdk_worker_parallelism": str(flink.sdk_worker_parallelism),
        "environment_cache_millis": str(flink.environment_cache_millis),
    }
    if "environment_type" not in given:
        options |= {"environment_type": "EXTERNAL", "environment_config": flink.pool_endpoint}
    return [f"--{name}={value}" for name, value in options.items() if name not in given]


class FlinkCluster:
    """The jobs and the slots of a cluster, through the REST interface of its JobManager.

    Args:
        master: HOST:PORT of it.
    """

    def __init__(self, master: str) -> None:
        self._master = master

    def parallelism(self) -> int:
        """Return the number of task slots.

        Raises:
            EnvironmentFault: the cluster does not answer, or has no slots.
        """
        slots = int(self._call("/overview")["slots-total"])
        if slots == 0:
            raise EnvironmentFault(
                f"the Flink cluster at {self._master} has no TaskManager",
                "start one; where the cluster starts them on demand, set runner.flink.parallelism",
            )
        return slots

    def unfinished(self, work: str) -> list[str]:
        """Return the ids of the jobs of a piece of work (``work_name``) that have not ended.

        Raises:
            EnvironmentFault: the cluster does not answer.
        """
        jobs = self._call("/jobs/overview")["jobs"]
        left = [job for job in jobs if job["state"] not in _ENDED]
        return [job["jid"] for job in left if job["name"].startswith(f"{work}-")]

    def cancel(self, work: str, seconds: float = _CANCEL_SECONDS) -> int:
        """Cancel the jobs of a piece of work and wait for their end; return how many there were.

        Raises:
            EnvironmentFault: the cluster does not answer, or a job does not end in this time.
        """
        found = self.unfinished(work)
        deadline = time.monotonic() + seconds
        while left := self.unfinished(work):
            if time.monotonic() > deadline:
                raise EnvironmentFault(
                    f"the Flink job {left[0]} at {self._master} does not end after it was cancelled",
                    "see the logs of its TaskManagers",
                )
            for job in left:
                self._call(f"/jobs/{job}?mode=cancel", method="PATCH")
            time.sleep(_LOOK_SECONDS)
        return len(found)

    def _call(self, path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(f"http://{self._master}{path}", method=method)
        try:
            with open_url(request, _CALL_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if method == "PATCH" and error.code in (_NO_SUCH_JOB, _HAS_ENDED):
                return None  # the job ended meanwhile
            raise self._fault(error) from error
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise self._fault(error) from error

    def _fault(self, error: Exception) -> EnvironmentFault:
        return EnvironmentFault(
            f"the Flink cluster at {self._master} does not answer: {error}",
            "check runner.flink.master, and that the JobManager is running",
        )


@contextlib.contextmanager
def only_job(cluster: FlinkCluster, work: str) -> Iterator[None]:
    """Cancel left-over jobs of a piece of work first, and the job of the block if it does not end well.

    Raises:
        EnvironmentFault: the cluster does not answer before the block.
    """
    if number := cluster.cancel(work):
        log(f"cancelled {number} Flink job of an earlier run that was still working on this", level="warning")
    try:
        yield
    except BaseException:
        # Short, since the command may be killed soon after it was asked to stop.
        with contextlib.suppress(EnvironmentFault):
            cluster.cancel(work, seconds=5)
        raise
