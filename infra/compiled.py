"""Code of ours that is compiled when the project is installed, where there is a C compiler."""

from __future__ import annotations

import ctypes
import importlib.machinery
from pathlib import Path


def load_compiled(stem: Path) -> ctypes.CDLL | None:
    """The library at ``stem``, a path without the suffix that builds give it; None where there is none."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = stem.with_name(stem.name + suffix)
        if path.exists():
            try:
                return ctypes.CDLL(str(path))
            except OSError:
                return None
    return None
