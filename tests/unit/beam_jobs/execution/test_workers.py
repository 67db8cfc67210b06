"""The pool of Python workers listens on loopback only, replaces workers of an id, and leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest
from apache_beam.portability.api import beam_fn_api_pb2 as fn_api
from apache_beam.portability.api import beam_fn_api_pb2_grpc as fn_api_grpc
from apache_beam.portability.api import endpoints_pb2

from shardmill.beam_jobs.execution.workers import check_loopback
from shardmill.infra.errors import ConfigError
from shardmill.infra.processes.ports import free_port
from tests.samples.waiting import before_its_end, eventually

REPOSITORY = Path(__file__).parents[4]


@pytest.mark.parametrize(
    "address", ["0.0.0.0:50000", "[::]:50000", "10.1.2.3:50000", "localhost", "workers:1"]
)
def test_other_addresses_than_loopback_are_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="loopback only"):
        check_loopback(address)


@pytest.mark.parametrize("address", ["localhost:50000", "127.0.0.3:1", "[::1]:50000"])
def test_loopback_is_allowed(address: str) -> None:
    check_loopback(address)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[tuple[psutil.Process, str]]:
    """A pool with its address."""
    address = f"127.0.0.1:{free_port()}"
    log = tmp_path / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "shardmill.beam_jobs.worker_pool", "--listen", address],
            stderr=stream,
            cwd=REPOSITORY,
            start_new_session=True,
        )
    before_its_end(
        lambda: True if "listening" in log.read_text() else None, lambda: process.poll() is not None
    )
    yield psutil.Process(process.pid), address
    process.kill()
    process.wait()


def start_worker(address: str, worker_id: str) -> str:
    """Ask for a worker; returns the error."""
    endpoint = endpoints_pb2.ApiServiceDescriptor(url="127.0.0.1:9")
    with grpc.insecure_channel(address) as channel:
        answer = fn_api_grpc.BeamFnExternalWorkerPoolStub(channel).StartWorker(
            fn_api.StartWorkerRequest(worker_id=worker_id, control_endpoint=endpoint), timeout=60
        )
    return str(answer.error)


def test_a_worker_that_cannot_start_is_an_error(pool: tuple[psutil.Process, str]) -> None:
    assert "died while it was starting" in start_worker(pool[1], "--no-id")


def test_workers_are_replaced_stopped_and_die_with_the_pool(pool: tuple[psutil.Process, str]) -> None:
    process, address = pool
    assert [start_worker(address, worker) for worker in ("1-1", "1-2")] == ["", ""]
    first, second = process.children()
    assert start_worker(address, "1-1") == ""
    assert not first.is_running(), "the TaskManager that asked for it is gone"
    with grpc.insecure_channel(address) as channel:
        stub = fn_api_grpc.BeamFnExternalWorkerPoolStub(channel)
        stub.StopWorker(fn_api.StopWorkerRequest(worker_id="1-2"), timeout=60)
    assert not second.is_running()
    (third,) = process.children()
    os.kill(process.pid, signal.SIGKILL)
    assert eventually(lambda: not third.is_running() or third.status() == psutil.STATUS_ZOMBIE)
