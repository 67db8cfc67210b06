"""The reasons why an address gives no image, as the rows of the inputs record them."""

from __future__ import annotations

from shardmill.beam_jobs.reasons import (
    ACCESS_DENIED,
    BROKEN_OFF,
    NOT_FOUND,
    SERVER_ERROR,
    TIMED_OUT,
    TOO_MANY_REQUESTS,
    UNREACHABLE,
)
from shardmill.beam_jobs.sources.files.walking import SourceFault

# Reasons that may be gone the next time, so that a run which is started again asks again.
MAY_PASS = frozenset({UNREACHABLE, TIMED_OUT, BROKEN_OFF, TOO_MANY_REQUESTS, SERVER_ERROR})

_GONE = (404, 410)
_DENIED = (401, 402, 403, 407, 451)
_REPEATED = (408, 425, 429)  # and 5xx, but for those that say that it will never work
_NEVER = (501, 505, 506, 508, 510, 511)


class FetchFault(SourceFault):
    """An address gives no image.

    Attributes:
        reason, message: of the row.
        is_repeated: whether the request is repeated after a pause.
        wait_seconds: how long the server asks to wait before the next request, or None.
    """

    def __init__(
        self, reason: str, message: str, *, is_repeated: bool = False, wait_seconds: float | None = None
    ) -> None:
        super().__init__(reason, message)
        self.is_repeated = is_repeated
        self.wait_seconds = wait_seconds


def fault_of_status(status: int, wait_seconds: float | None) -> FetchFault:
    """Return the fault that a status other than success and redirection means.

    Args:
        status: HTTP status of the response.
        wait_seconds: its Retry-After, or None.
    """
    message = f"the server answers with status {status}"
    if status in _GONE:
        return FetchFault(NOT_FOUND, message)
    if status in _DENIED:
        return FetchFault(ACCESS_DENIED, message)
    is_repeated = status in _REPEATED or (500 <= status < 600 and status not in _NEVER)
    reason = TOO_MANY_REQUESTS if status == 429 else SERVER_ERROR
    return FetchFault(reason, message, is_repeated=is_repeated, wait_seconds=wait_seconds)


def unreachable(message: str = "its host cannot be reached, or does not answer") -> FetchFault:
    """Return the fault of a host that does not answer; the request is repeated."""
    return FetchFault(UNREACHABLE, message, is_repeated=True)
