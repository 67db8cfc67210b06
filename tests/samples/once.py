"""A fault that happens once in a test, however many processes try it one after the other."""

from __future__ import annotations

import os
from pathlib import Path


def happens_once(variable: str) -> bool:
    """Return whether it has not happened yet, and note that it has.

    Args:
        variable: an environment variable with the path of the file that notes it.
    """
    marker = Path(os.environ[variable])
    if marker.exists():
        return False
    marker.touch()
    return True
