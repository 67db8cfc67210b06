"""What the alarm remembers when its process is started again: a JSON file below SHARDMILL_HOME/alarm."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from shardmill.flows import home

LOG = logging.getLogger("shardmill.alarm")

V = TypeVar("V")


class KeptFile(Generic[V]):
    """A file that keeps a value.

    Args:
        name: of the file.
        shape: the type of the value.
        without: what follows if the file is damaged, for the log.
    """

    def __init__(self, name: str, shape: type[V], without: str) -> None:
        self._name, self._without = name, without
        self._adapter: TypeAdapter[V] = TypeAdapter(shape)

    @property
    def path(self) -> Path:
        """Path of the file."""
        return home.alarm_folder() / self._name

    def read(self, default: V) -> V:
        """Return the value; the default if there is none, or if the file is damaged, which is logged."""
        try:
            return self._adapter.validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return default
        except (OSError, ValidationError) as error:
            LOG.warning("%s is damaged, so %s: %s", self.path, self._without, error)
            return default

    def write(self, value: V) -> None:
        """Keep a value, at once or not at all."""
        temporary = self.path.with_suffix(".tmp")
        temporary.write_bytes(self._adapter.dump_json(value))
        temporary.replace(self.path)
