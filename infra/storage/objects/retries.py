"""Repeat an operation of an object store after temporary failures, with random, growing, bounded pauses."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

ATTEMPTS = 8
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 8.0
DEADLINE_SECONDS = 60.0  # no attempt begins later than this after the first one

_FINAL_ERRORS = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)
# S3 answers a request whose body came too slowly with status 400 and this code.
_PASSING_TEXT = re.compile(r"RequestTimeout|REQUEST_TIMEOUT")
# How clients name the requests that will never succeed. Other statuses, 408 and 429 among them, may pass.
_FINAL_TEXT = re.compile(
    r"ACCESS_DENIED|ACCESS_KEY|SIGNATURE_DOES_NOT_MATCH|NO_SUCH_BUCKET"
    r"|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|NoSuchBucket"
    r"|(?:HTTP status|status code:) (?:400|401|403|404|405|501)"
    r"|Azure Error: \[\w*\] (?:400|401|403|404|405|501)"
    r"|Azure Error: \[(?:BlobArchived|BlobBeingRehydrated)\]"  # status 409
)


def is_retryable(error: OSError) -> bool:
    """Tell whether the same request may succeed later: not if the store refused it or has no such object."""
    if isinstance(error, _FINAL_ERRORS):
        return False
    text = str(error)
    return _PASSING_TEXT.search(text) is not None or _FINAL_TEXT.search(text) is None


def retry(operation: Callable[[], T]) -> T:
    """Return the result of ``operation``, repeated while it raises a retryable ``OSError``.

    The pause before attempt n + 1 is drawn uniformly from 0 to 0.2 · 2ⁿ seconds, at most 8 ("full jitter":
    many clients that failed together do not come back together).

    Args:
        operation: safe to repeat: it has the same effect when done twice.

    Raises:
        OSError: the failure is final, or the last attempt failed.
    """
    deadline = time.monotonic() + DEADLINE_SECONDS
    longest_pause = _FIRST_PAUSE_SECONDS
    for _ in range(ATTEMPTS - 1):
        try:
            return operation()
        except OSError as error:
            if not is_retryable(error) or time.monotonic() > deadline:
                raise
        longest_pause = min(2 * longest_pause, _LONGEST_PAUSE_SECONDS)
        time.sleep(random.uniform(0, longest_pause))
    return operation()
