"""The one error tree of Shardmill.

    ShardmillError                 exit  what happened
    ├── UsageError                    2  the command or its configuration is wrong
    │   ├── ConfigError               2  a key or value of the configuration
    │   │   └── Diverged              2  loss, gradient or weights became infinite or not a number
    │   └── NotFoundError             2  a source, dataset, version or record that is not there
    ├── DataError                     3  more of the data is bad than is allowed
    │   ├── FailureBudgetExceeded     3  too many inputs were quarantined
    │   ├── DriftExceeded             3  a version differs too much from the one before
    │   ├── LeakError                 3  groups are divided among splits, and were not to be
    │   ├── AccountingError           3  inputs and outcomes do not add up
    │   └── CorruptDataError          3  stored bytes were changed or are incomplete
    ├── EnvironmentFault              4  the machine, the storage or another process
    │   ├── StorageError              4  a read or write that failed
    │   │   └── ObjectRefused         4  an object that its store does not give
    │   ├── LockedError               4  another process holds the lock
    │   ├── ChildDied                 4  a child process ended without saying why
    │   ├── RankLost                  4  another process of the same training ended or does not answer
    │   ├── OutOfMemory               4  a training step does not fit into the memory of its device
    │   ├── FormatVersionError        4  written by another version of the format
    │   └── PublishConflict           4  another writer published this version first
    ├── SignatureError                5  a signature is missing, or another content or key was signed
    └── Cancelled                   130  stopped on request
        └── Preempted                75  stopped by a signal of the system; start the same command again

An error names the file, key or value at fault and, as ``remedy``, what to do about it.
A single input that cannot become a record is no error of this tree: it is an ``UnusableInput``, and becomes a
row of the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Remedy where finished work is kept: blocks, shards, checkpoints.
GO_ON = "run the same command again: it continues where it stopped"


class ShardmillError(Exception):
    """Base of all errors that Shardmill raises on purpose.

    Attributes:
        message: the fault, naming the file, key or value.
        remedy: what the user can do about it, or None.
        exit_code: the exit status of a command that ends with this error.
    """

    exit_code = 4

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message

    def to_event(self) -> dict[str, Any]:
        """The error as the JSON event that a child process sends its parent."""
        return {
            "event": "error",
            "type": type(self).__name__,
            "message": self.message,
            "remedy": self.remedy,
            "exit_code": self.exit_code,
        }


class UsageError(ShardmillError):
    """The command line is wrong."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration key or value is wrong."""


class Diverged(ConfigError):
    """Loss, gradient or weights of a training became infinite or not a number."""


class DivergedElsewhere(Diverged):
    """The same, and another rank computed such a number before this one."""


class NotFoundError(UsageError):
    """A source, dataset, version or record does not exist."""


class DataError(ShardmillError):
    """More of the data is bad than is allowed."""

    exit_code = 3


class FailureBudgetExceeded(DataError):
    """More inputs were quarantined than the failure budget allows; nothing was published."""


class DriftExceeded(DataError):
    """The version differs more from the one before than drift.action = stop allows; nothing was published."""


class LeakError(DataError):
    """Groups are divided among the splits where groups.leakage = fail; nothing was published."""


class AccountingError(DataError):
    """The outcomes of the inputs do not add up; nothing was published."""


class CorruptDataError(DataError):
    """Stored bytes were changed or are incomplete: a failed checksum, a truncated record or shard."""


class EnvironmentFault(ShardmillError):
    """The machine, the storage or another process is at fault."""


class StorageError(EnvironmentFault):
    """A read or write of storage failed."""


class ObjectRefused(StorageError):
    """The store answers that it does not give this object; the same request would fail again."""


class LockedError(EnvironmentFault):
    """Another process holds the lock on the same work."""


class ChildDied(EnvironmentFault):
    """A child process ended without saying why."""


class RankLost(EnvironmentFault):
    """Another process of the same training ended or does not answer, so this one cannot go on."""


class OutOfMemory(EnvironmentFault):
    """A training step does not fit into the memory of its device."""


class FormatVersionError(EnvironmentFault):
    """The dataset was written under another version of the on-disk format."""


class PublishConflict(EnvironmentFault):
    """Another writer published the same version number first."""


class SignatureError(ShardmillError):
    """A signature is missing, belongs to another content, or was made with another key."""

    exit_code = 5


class Cancelled(ShardmillError):
    """The work was stopped on request and can be resumed."""

    exit_code = 130


class Preempted(Cancelled):
    """A signal asked the work to make room. It saved its state, and shall be started again.

    The exit status is EX_TEMPFAIL of sysexits.h, "try again", which is no status of an error or of Ctrl-C.
    """

    exit_code = 75


class UnusableInput(Exception):
    """One input cannot become a record. It becomes a row that says why, and is never the end of a job.

    Attributes:
        reason: a short code.
        message: the fault, for a person.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message


def _subclasses(cls: type[ShardmillError]) -> dict[str, type[ShardmillError]]:
    found = {cls.__name__: cls}
    for child in cls.__subclasses__():
        found |= _subclasses(child)
    return found


def from_event(event: Mapping[str, Any]) -> ShardmillError:
    """The error that a child process described with ``ShardmillError.to_event``."""
    kind = _subclasses(ShardmillError).get(str(event.get("type")), EnvironmentFault)
    return kind(str(event.get("message", "unknown error")), event.get("remedy"))
