"""Errors when the job server goes away, and when it reports a failed worker."""

from __future__ import annotations

import threading

import grpc
import pytest

from shardmill.beam_jobs.execution.job_server import cancel, job_server_faults
from shardmill.beam_jobs.execution.task import CarriedFault
from shardmill.infra.errors import EnvironmentFault, StorageError


class LostConnection(grpc.RpcError):  # type: ignore[misc]
    def details(self) -> str:
        return "Socket closed"


def lose_connection() -> None:
    raise LostConnection


def test_a_lost_job_server_is_said_once_although_two_threads_notice(
    capfd: pytest.CaptureFixture[str],
) -> None:
    hook = threading.excepthook

    def run() -> None:
        with job_server_faults():
            reader = threading.Thread(target=lose_connection)
            reader.start()
            reader.join()
            lose_connection()

    with pytest.raises(EnvironmentFault, match="the job server does not answer: Socket closed"):
        run()
    assert threading.excepthook is hook
    assert capfd.readouterr().err == ""


def test_the_error_of_a_worker_arrives_as_what_it_was() -> None:
    said = f"Pipeline job failed: {CarriedFault(StorageError('cannot write x', 'make room'))}"
    with pytest.raises(StorageError, match="cannot write x") as caught, job_server_faults():
        raise RuntimeError(said)
    assert caught.value.remedy == "make room"


def test_any_other_end_is_told_in_the_words_of_the_job_server() -> None:
    with (
        pytest.raises(EnvironmentFault, match=r"ended the pipeline: no slots .* run the same"),
        job_server_faults(),
    ):
        raise RuntimeError("no\n slots")


def test_cancelling_does_not_fail_where_the_job_server_is_gone() -> None:
    asked = []

    class Result:
        def cancel(self) -> None:
            asked.append(True)
            raise LostConnection

    cancel(Result())
    assert asked
