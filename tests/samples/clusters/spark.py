"""Beam's job server for Spark, with a local Spark master; its jars: ``infra/deploy/spark/pom.xml``."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shardmill.infra.processes.ports import free_ports
from tests.samples.waiting import eventually

JARS = Path(os.environ.get("SHARDMILL_SPARK_JARS", "~/.cache/shardmill/spark")).expanduser()
START_SECONDS = 240.0

# Spark 3 reaches into the packages of newer Java versions.
_OPENED = (
    "java.lang", "java.lang.invoke", "java.io", "java.net", "java.nio", "java.util", "java.util.concurrent",
    "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar",
)  # fmt: skip


@contextmanager
def running_job_server(folder: Path) -> Iterator[str]:
    """Start the job server, and give the block its address."""
    ports = free_ports(3)
    names = ("--job-port", "--artifact-port", "--expansion-port")
    command = ["java", "-Xmx768m", *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED)]
    command += ["-cp", f"{JARS}/*", "org.apache.beam.runners.spark.SparkJobServerDriver"]
    command += [
        "--job-host=localhost",
        "--spark-master-url=local[2]",
        f"--artifacts-dir={folder / 'artifacts'}",
    ]
    command += [f"{name}={port}" for name, port in zip(names, ports, strict=True)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    try:
        listens = eventually(lambda: process.poll() is not None or _listens(ports[0]), START_SECONDS)
        assert listens, "the job server does not listen"
        assert process.poll() is None, (folder / "server.log").read_text()[-3000:]
        yield f"localhost:{ports[0]}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("localhost", port)) == 0
