"""Keep a value of the alarm over restarts, in a JSON file below SHARDMILL_HOME/alarm."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Generic, TypeVar

from shardmill.flows import home
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.json_files import read_json, write_json

LOG = logging.getLogger("shardmill.alarm")

V = TypeVar("V")


class KeptFile(Generic[V]):
    """A file that keeps a value.

    Args:
        name: name of the file.
        shape: the type of the value.
        without: the consequence of a damaged file, for the log.
    """

    def __init__(self, name: str, shape: type[V], without: str) -> None:
        self._name, self._shape, self._without = name, shape, without

    @property
    def path(self) -> Path:
        """Path of the file."""
        return home.alarm_folder() / self._name

    def read(self, default: V) -> V:
        """Return the value; the default if there is none, or if the file is damaged, which is logged."""
        if not self.path.exists():
            return default
        try:
            return read_json(self.path, self._shape, "delete it")
        except CorruptDataError as error:
            LOG.warning("%s, so %s", error.message, self._without)
            return default

    def write(self, value: V) -> None:
        """Keep a value, at once or not at all."""
        write_json(self.path, value)
