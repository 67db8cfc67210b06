"""The command of a process that runs one of our modules."""

from __future__ import annotations

import sys


def python_module(module: str, *arguments: str, python: str = sys.executable) -> list[str]:
    """Return the command that runs a module with arguments.

    ``-P`` keeps the working directory off the path of the process and of those that ``multiprocessing``
    starts there: files of the user, such as ``random.py``, must not hide modules of Python or of libraries.

    Args:
        module: its dotted name.
        *arguments: its arguments.
        python: the interpreter.
    """
    return [python, "-P", "-m", module, *arguments]
