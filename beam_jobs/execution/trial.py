"""Trials: decode a suspected file alone in a sandbox, and decide whether it is to blame.

what happened in the sandbox                         verdict
the call returned, or raised an error                none: the file is harmless, whether an image or not
it took more than runner.image_seconds               decoder_hung
it took or got no more than runner.image_memory_bytes  decoder_out_of_memory
its process died                                     decoder_crashed, with two exceptions:
    ... but not with twice the memory                decoder_out_of_memory: a library did not handle it
    ... of SIGKILL, twice, which we did not send     decoder_out_of_memory: the system ran out of memory
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from shardmill.beam_jobs.execution.pool.sandbox import Ending, SandboxResult, call_in_sandbox
from shardmill.beam_jobs.execution.task import Limits
from shardmill.beam_jobs.reasons import CRASHED, HUNG, OUT_OF_MEMORY

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
