"""The command line that does what a flow run did, to show it on the page of a run that failed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from shardmill.infra.strict_json import dump_json


def command_of(arguments: Sequence[str], settings: Mapping[str, BaseModel]) -> str:
    """Return a `shardmill` command.

    Args:
        arguments: arguments of the command, without settings.
        settings: prefix of their keys -> settings; those that differ from the defaults become ``--set``.
    """
    words = ["shardmill", *arguments]
    for prefix, model in settings.items():
        for key, value in _leaves(model.model_dump(mode="json", exclude_defaults=True), prefix):
            words += ["--set", f"{key}={value if isinstance(value, str) else dump_json(value)}"]
    return shlex.join(words)


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        key = f"{prefix}.{name}" if prefix else name
        if isinstance(value, Mapping):
            yield from _leaves(value, key)
        else:
            yield key, value
