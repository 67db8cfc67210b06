"""Import a flow, and Prefect with it, on a thread while the first job of a command already works."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

_NAME = "import-flow"


def import_meanwhile(load: Callable[[], Any]) -> threading.Thread:
    """Call ``load`` on a thread; join it before importing anything else that it may import.

    Prefect's settings must be in the environment. A command that needs no flow after all does not wait for
    the thread (``is_importing``).
    """

    def run() -> None:
        with contextlib.suppress(Exception):  # the command calls it again, and fails there
            load()

    thread = threading.Thread(target=run, name=_NAME, daemon=True)
    thread.start()
    return thread


def is_importing() -> bool:
    """Tell whether a thread still imports modules: then the process must end by ``exit_at_once``.

    At an ordinary end, the interpreter would abort the thread in the middle of native code.
    """
    return any(thread.name == _NAME for thread in threading.enumerate())
