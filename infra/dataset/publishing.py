"""Publishing beside other writers: the loser of a race starts again on top of the winner."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from shardmill.infra.errors import PublishConflict
from shardmill.infra.progress import log

ATTEMPTS = 10

T = TypeVar("T")


def publish_on_newest(dataset: str, attempt: Callable[[], T]) -> T:
    """Attempt to publish, again after each version that another process publishes meanwhile.

    Args:
        dataset: its name.
        attempt: opens the newest version and publishes the next one.

    Returns:
        What the attempt that succeeded returns.

    Raises:
        PublishConflict: others published first ATTEMPTS times.
    """
    for number in range(1, ATTEMPTS + 1):
        try:
            return attempt()
        except PublishConflict:
            if number < ATTEMPTS:
                log("another process published a version meanwhile; starting again on top of it")
    raise PublishConflict(f"other writers keep publishing versions of {dataset}", "run again")
