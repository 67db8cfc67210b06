"""Ignore patterns: shell patterns over names and paths, without regard to case."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

from shardmill.infra.arguments import checked


class IgnorePatterns:
    """Finds the pattern that matches a file or folder.

    A pattern without ``/`` is matched against the last name of a path, one with ``/`` against the whole path
    relative to the source, where ``*`` also matches ``/``. The caller ignores all files in ignored folders.
    """

    @checked
    def __init__(self, patterns: Sequence[str]) -> None:
        self._of_names = [pattern for pattern in patterns if "/" not in pattern]
        self._of_paths = [pattern.strip("/") for pattern in patterns if "/" in pattern]
        self._names = _alternatives(self._of_names)
        self._paths = _alternatives(self._of_paths)

    def match(self, name: str, uri: str) -> str | None:
        """Return the first pattern that matches the entry ``name`` at ``uri``, or None."""
        is_name = name not in (".", "..")  # a part of an object's key, no hidden file
        if self._names is not None and is_name and (found := self._names.match(name)):
            return self._of_names[(found.lastindex or 1) - 1]
        if self._paths is not None and (found := self._paths.match(uri)):
            return self._of_paths[(found.lastindex or 1) - 1]
        return None

    def match_path(self, uri: str) -> str | None:
        """Return the pattern that matches the file or one of the folders above it, or None."""
        at = -1
        while (at := uri.find("/", at + 1)) >= 0:
            folder = uri[:at]
            if (by := self.match(folder.rpartition("/")[2], folder)) is not None:
                return by
        return self.match(uri.rpartition("/")[2], uri)


def _alternatives(patterns: Sequence[str]) -> re.Pattern[str] | None:
    """Join patterns to one expression with a group each, so that 20 patterns cost one call."""
    if not patterns:
        return None
    return re.compile("|".join(f"({fnmatch.translate(pattern)})" for pattern in patterns), re.IGNORECASE)
