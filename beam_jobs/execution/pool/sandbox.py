"""A disposable process that calls one function on the bytes of one file, under limits of time and memory.

``try_alone`` decodes a suspected file in it, and decides whether it is to blame::

    what happened in the sandbox                         verdict
    the call returned, or raised an error                none: the file is harmless, whether an image or not
    it took more than runner.image_seconds               decoder_hung
    it took or got no more than runner.image_memory_bytes  decoder_out_of_memory
    its process died                                     decoder_crashed, with two exceptions:
        ... but not with twice the memory                decoder_out_of_memory: a library did not handle it
        ... of SIGKILL, twice, which we did not send     decoder_out_of_memory: the system ran out of memory
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

from shardmill.beam_jobs.execution.pool.limits import Watch, is_out_of_memory, limit_memory
from shardmill.beam_jobs.execution.pool.starting import ForkedProcess, detach_process, pipe
from shardmill.beam_jobs.execution.task import Limits
from shardmill.beam_jobs.reasons import CRASHED, HUNG, OUT_OF_MEMORY
from shardmill.infra.processes.process import describe_status, own_peak_rss_bytes

_LOOK_SECONDS = 0.1

Ending = Literal["returned", "raised", "got_no_memory", "hung", "too_large", "died", "did_not_begin"]


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """The end of a call in a sandbox.

    Attributes:
        ending: returned; raised: the call raised an error; got_no_memory: it failed for lack of memory; hung,
            too_large: we ended it; died: its process ended during the call; did_not_begin: its process ended
            before the call.
        value: the value that the call returned.
        status: exit status of a process that died; negative if a signal ended it.
        memory_bytes: memory that the call took, if it returned or raised.
    """

    ending: Ending
    value: Any = None
    status: int = 0
    memory_bytes: int = 0

    def __str__(self) -> str:
        """The ending in words, for a log."""
        return describe_status(self.status) if self.ending == "died" else self.ending.replace("_", " ")


def call_in_sandbox(call: Callable[[bytes], Any], data: bytes, limits: Limits) -> SandboxResult:
    """Call a function on bytes in a process of its own, and wait for its end.

    Args:
        call: importable by name; its result can be pickled.
        data: the bytes.
        limits: time and memory of the call. Loading libraries and passing the bytes do not count.
    """
    ours, theirs = pipe()
    given = (theirs, call, limits.memory_bytes, dict(os.environ))
    process = ForkedProcess(_serve_once, given, "sandbox")
    theirs.close()
    begun = False
    with ours:
        try:
            ours.send_bytes(data)
            ours.recv()
            begun = True
            return _wait_for_end(ours, process, limits)
        except (EOFError, OSError):
            return SandboxResult("died" if begun else "did_not_begin", status=process.end())
        finally:
            process.end()


def _wait_for_end(connection: Connection, process: ForkedProcess, limits: Limits) -> SandboxResult:
    watch, since = Watch(process.pid, limits), time.monotonic()
    while not wait([connection, process.sentinel], _LOOK_SECONDS):
        excess = watch.excess(since)
        if excess is not None:
            return SandboxResult("hung" if excess == "time" else "too_large")
    result: SandboxResult = connection.recv()
    return result


def _serve_once(
    connection: Connection, call: Callable[[bytes], Any], memory_bytes: int, environment: Mapping[str, str]
) -> None:
    """Make the call; runs in the sandbox."""
    detach_process()
    os.environ.update(environment)  # with credentials of stores, which the server may lack
    data = connection.recv_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    before_bytes = own_peak_rss_bytes()
    limit_memory(memory_bytes)
    connection.send(None)  # the call begins
    value, ending = None, "returned"
    try:
        value = call(data)
    except Exception as error:  # noqa: BLE001  (whatever a decoder says against a file)
        ending = "got_no_memory" if is_out_of_memory(error) else "raised"
    connection.send(SandboxResult(ending, value, memory_bytes=own_peak_rss_bytes() - before_bytes))  # type: ignore[arg-type]


_PROVES: dict[Ending, str] = {
    "hung": HUNG,
    "too_large": OUT_OF_MEMORY,
    "got_no_memory": OUT_OF_MEMORY,
    "died": CRASHED,
}


def try_alone(decode: Callable[[bytes], object], data: bytes, limits: Limits) -> tuple[str | None, str]:
    """Decode a file alone.

    Args:
        decode: importable by name.
        data: content of the file.
        limits: time (seconds) and memory (bytes) allowed for the file.

    Returns:
        Why the file is to blame, or None if it is not; and how the first call ended, in words for a log.
    """
    first = call_in_sandbox(decode, data, limits)
    seen = str(first)
    if first.ending != "died":
        return _PROVES.get(first.ending), seen
    if _was_killed(first):
        second = call_in_sandbox(decode, data, limits)
        return OUT_OF_MEMORY if _was_killed(second) else _PROVES.get(second.ending), seen
    more = Limits(limits.seconds, 2 * limits.memory_bytes)
    second = call_in_sandbox(decode, data, more)
    if second.ending == "died":
        return CRASHED, seen
    needs_more = second.ending in _PROVES or second.memory_bytes > limits.memory_bytes
    return OUT_OF_MEMORY if needs_more else CRASHED, seen


def _was_killed(result: SandboxResult) -> bool:
    return result.ending == "died" and result.status == -signal.SIGKILL
