"""One record of the history of an alias."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from shardmill.infra.errors import FormatVersionError
from shardmill.infra.json_files import decode_json

Action = Literal["promoted", "rolled back", "kept"]

_FORMAT = 1


class AliasRecord(BaseModel):
    """A decision about an alias: it was moved to a run, or stayed although a run was a candidate for it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: int = _FORMAT
    number: int = Field(default=0, ge=0, description="counts the records of the alias, from 1")
    dataset: str = Field(description="name of the dataset whose models the alias names")
    alias: str = Field(description="name of the alias")
    action: Action = Field(description="'kept': the run did not get the alias")
    run: str = Field(description="name of the run that the record is about")
    at: str = Field(description="time of the decision, in UTC")
    by: str = Field(description="user and machine that decided")
    trained_on: str = Field(description="dataset version that the run was trained on, as name@version")
    manifest_sha256: str | None = Field(default=None, description="SHA-256 of the manifest of that version")
    predecessor: str | None = Field(default=None, description="run that had the alias; None: no run had it")
    verdict: str = Field(description="the decision in words, with its figures")
    reason: str | None = Field(default=None, description="reason that a person gave; None: figures decided")
    comparison: dict[str, Any] | None = Field(
        default=None, description="figures of the predecessor and of the run on the same records"
    )
    restores: int | None = Field(
        default=None, description="number of the record whose state a rollback brought back"
    )

    @property
    def is_move(self) -> bool:
        """Whether the run of the record got the alias."""
        return self.action != "kept"

    def encode(self) -> bytes:
        """Return the content of the record's file."""
        return self.model_dump_json(indent=1).encode("utf-8")


def decode_record(data: bytes, path: str) -> AliasRecord:
    """Read the content of a record's file.

    Raises:
        FormatVersionError: a later release wrote it. CorruptDataError: it is no record.
    """
    record = decode_json(data, AliasRecord, path, "restore it from a copy")
    if record.format > _FORMAT:
        raise FormatVersionError(
            f"{path} was written in format {record.format}; this release knows {_FORMAT}",
            "use the newer release",
        )
    return record


def now() -> str:
    """Return the present time in UTC, as records have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def this_user(environment: Mapping[str, str] = os.environ) -> str:
    """Return the user and the machine of this process, as ``user@machine``.

    Args:
        environment: ``SHARDMILL_USER`` in it stands for the user, as where a service acts for people.
    """
    name = environment.get("SHARDMILL_USER")
    if not name:
        try:
            name = getpass.getuser()
        except (KeyError, OSError):  # a container without an entry for its user
            name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"
