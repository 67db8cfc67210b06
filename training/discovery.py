"""Find what the modules of a package define, so that a new file needs no entry in a list."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any


def classes_in(package: str, base: Any, leave_out: tuple[str, ...] = ()) -> list[Any]:
    """Import the modules of a package, and return their classes that derive from another one.

    Args:
        package: the full name of the package.
        base: the class from which they derive; one of the package itself does not count.
        leave_out: names of modules that are not looked at.
    """
    found: list[Any] = []
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if info.name in leave_out:
            continue
        module = importlib.import_module(f"{package}.{info.name}")
        found += [
            value
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, base)
            and value is not base
            and value.__module__ == module.__name__
        ]
    return found
