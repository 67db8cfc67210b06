"""Ignore patterns: shell patterns over names and paths, whatever the case of their letters."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence


class IgnorePatterns:
    """Tells which pattern names a file or folder.

    A pattern without ``/`` is held against the last name of a path, one with ``/`` against the whole path
    relative to the source (there ``*`` crosses folders). What an ignored folder holds is ignored with it;
    following folders down is the caller's part.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._of_names = [pattern for pattern in patterns if "/" not in pattern]
        self._of_paths = [pattern.strip("/") for pattern in patterns if "/" in pattern]
        self._names = _alternatives(self._of_names)
        self._paths = _alternatives(self._of_paths)

    def match(self, name: str, uri: str) -> str | None:
        """The first pattern that names the entry ``name`` at ``uri``, or None."""
        if self._names is not None and (found := self._names.match(name)):
            return self._of_names[(found.lastindex or 1) - 1]
        if self._paths is not None and (found := self._paths.match(uri)):
            return self._of_paths[(found.lastindex or 1) - 1]
        return None


def _alternatives(patterns: Sequence[str]) -> re.Pattern[str] | None:
    """One expression with a group a pattern: matching 20 patterns costs a call, not 20."""
    if not patterns:
        return None
    return re.compile("|".join(f"({fnmatch.translate(pattern)})" for pattern in patterns), re.IGNORECASE)
