"""Decide whether a job is tried again, and when.

A job whose process was killed, such as for lack of memory, continues where it stopped. An error that the job
reported would recur: a wrong setting, bad data, a full disk, a defect. Storage repeats its own requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from shardmill.infra.errors import ChildDied
from shardmill.infra.processes.process import is_defect
from shardmill.infra.progress import log

Result = TypeVar("Result")

# Each pause is four times as long as the one before: another program that fills the memory may end by then.
PAUSES_SECONDS = (5.0, 20.0, 80.0)


def may_help(error: BaseException) -> bool:
    """Tell whether the job that ended with this error may succeed when it is run again."""
    return isinstance(error, ChildDied) and not is_defect(error)


def tried_again(job: Callable[[], Result]) -> Result:
    """Call ``job``; call it again after a pause if the error may be temporary; raise the last error."""
    for pause in PAUSES_SECONDS:
        try:
            return job()
        except ChildDied as error:
            if not may_help(error):
                raise
            log(f"{error.message}; trying again in {pause:.0f} s", level="warning")
            time.sleep(pause)
    return job()
