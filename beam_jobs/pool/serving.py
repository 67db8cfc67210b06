"""A process of the pool: does the work that it is lent, one number after the other, until the job ends."""

from __future__ import annotations

import os
import pickle
import signal
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import NoReturn

from beam_jobs.faults import CarriedFault, carry_faults
from beam_jobs.memory import give_back
from beam_jobs.work import Work
from infra.process import die_at_once_with_parent

_IDLE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Request:
    """What a process is asked for.

    Attributes:
        work: the ``Work``, pickled; None where it is the one of the request before.
        number: of it.
    """

    work: bytes | None
    number: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request.

    Attributes:
        cpu_seconds: processor time that it took.
        error: what was raised, as text; None where the work is done.
    """

    cpu_seconds: float
    error: str | None


def serve(connection: Connection, parent: int) -> NoReturn:
    """Answer requests until the job closes the connection or dies; never returns.

    Args:
        connection: to the job.
        parent: its process number.
    """
    # Who stops the job signals its whole group. The job then unwinds, and this process ends with it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    die_at_once_with_parent()
    status = 1
    try:
        if os.getppid() == parent:
            _answer_all(connection)
        status = 0
    except SystemExit as ended:  # by an image library: the job ends so too
        status = ended.code if isinstance(ended.code, int) else 1
    except Exception:  # noqa: BLE001  (a defect: nobody else would say so)
        traceback.print_exc()
    finally:
        os._exit(status)


def _answer_all(connection: Connection) -> None:
    work: Work | None = None
    while True:
        try:
            if not connection.poll(_IDLE_SECONDS):
                give_back()  # the job itself is at work now, and can use it
            request: Request = connection.recv()
        except EOFError:
            return
        started = time.process_time()
        error = None
        try:
            with carry_faults():
                if request.work is not None:
                    work = _opened(request.work, work)
                assert work is not None
                work.do(request.number)
        except CarriedFault as fault:
            error = str(fault)
        except Exception:  # noqa: BLE001  (a defect: the job raises it)
            error = traceback.format_exc()
        connection.send(Answer(time.process_time() - started, error))


def _opened(pickled: bytes, before: Work | None) -> Work:
    if before is not None:
        before.close()
    work: Work = pickle.loads(pickled)
    work.open()
    return work
