"""Load the compiled code that belongs to a binding, and make the images on which it is compared."""

from __future__ import annotations

import ctypes
import importlib.machinery
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shardmill.infra.errors import ConfigError

Pixels = npt.NDArray[np.uint8]

# Folder of the compiled code in place of the installed one; "none" does without compiled code.
FOLDER_VARIABLE = "SHARDMILL_NATIVE"


def load_library(name: str) -> ctypes.CDLL | None:
    """Load a library of compiled code.

    Args:
        name: name of its file, without the suffix.

    Returns:
        None if there is none for this machine, or if the environment says to do without.

    Raises:
        ConfigError: the folder that the environment names does not hold this library.
    """
    chosen = os.environ.get(FOLDER_VARIABLE, "")
    if chosen == "none":
        return None
    folder = Path(chosen) if chosen else Path(__file__).parent
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = folder / f"{name}{suffix}"
        if path.exists():
            try:
                return ctypes.CDLL(str(path))
            except OSError as error:
                if chosen:
                    raise ConfigError(f"cannot load {path}: {error}", f"unset {FOLDER_VARIABLE}") from error
                return None  # built for another machine
    if chosen:
        raise ConfigError(f"{FOLDER_VARIABLE}: there is no {name} in {folder}", f"unset {FOLDER_VARIABLE}")
    return None


def scattered_bytes(*shape: int) -> Pixels:
    """Return the same image of a shape in every process, whose neighbouring bytes differ: uint8."""
    numbers = np.arange(np.prod(shape), dtype=np.uint32)
    return (numbers * 2654435761 >> 24).astype(np.uint8).reshape(shape)
