"""With this folder on PYTHONPATH each process that Python starts says which modules it has loaded.

It writes a file in the folder MODULES_SEEN, again whenever it has loaded more: its command, and of each
module with a file the name that it is known by, the name in its specification, and the real path of the file.
Forked processes do so too. Our own code is as it always is.
"""

import atexit
import json
import os
import sys
import threading
import time
from pathlib import Path

_SECONDS = 0.05
_folder = Path(os.environ["MODULES_SEEN"])
_exit = os._exit


def _say() -> None:
    found = {}
    for name, module in [*sys.modules.items()]:
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            own = getattr(getattr(module, "__spec__", None), "name", None) or name
            found.setdefault(id(module), (name, own, os.path.realpath(file)))
    text = json.dumps({"command": sys.orig_argv, "modules": [*found.values()]})
    unfinished = _folder / f"{os.getpid()}.part{threading.get_ident()}"
    unfinished.write_text(text)
    unfinished.replace(_folder / f"{os.getpid()}.json")


def _watch() -> None:
    known = 0
    while True:
        if len(sys.modules) != known:
            known = len(sys.modules)
            _say()
        time.sleep(_SECONDS)


def _begin() -> None:
    threading.Thread(target=_watch, name="modules-seen", daemon=True).start()


def _say_and_exit(status: int) -> None:
    _say()
    _exit(status)


_begin()
os.register_at_fork(after_in_child=_begin)
atexit.register(_say)
os._exit = _say_and_exit  # jobs end by it
