"""Name what keeps a command from loading a module: a file of the user, or an extra that is not installed.

A file of the user may hide a module of Python or of a library. With a ``random.py`` on PYTHONPATH, for
example, a library imports it in place of Python's, and fails.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

TYPE_CHECKING = False  # typing is not loaded yet, and may be hidden
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

_REMEDY = "give your file another name, or take its folder off PYTHONPATH"
_OF_LIBRARIES = ("site-packages", "dist-packages", "lib-dynload")


def watch_command() -> None:
    """Make a failure of this command name a hiding file or a missing extra, if one caused it.

    Call it before all other imports: one of them may be what fails.
    """
    sys.excepthook = _end


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    found = None if isinstance(error, KeyboardInterrupt) else _hiding_file(error)
    message = ""
    if found is not None:
        message = f"{found[0]} hides {found[1]}, and something failed there: {kind.__name__}: {error}"
    status = 2
    try:
        from shardmill.infra.errors import ConfigError
        from shardmill.infra.extras import missing_library
        from shardmill.infra.processes.process import follow_parent, print_error
        from shardmill.infra.progress import failure

        said = ConfigError(message, _REMEDY) if message else missing_library(error)
        if said is None:
            sys.__excepthook__(kind, error, trace)
            return
        status = said.exit_code
        follow_parent()
        failure(said)
        print_error(said)
    except Exception:  # noqa: BLE001  a module is hidden that these need
        if not message:
            sys.__excepthook__(kind, error, trace)
            return
        print(f"error: {message}\nremedy: {_REMEDY}", file=sys.stderr)
    sys.stderr.flush()
    os._exit(status)


def import_error(error: Exception) -> Exception | None:
    """Return an error that names the hiding file or the missing extra; None if it is neither."""
    found = _hiding_file(error)
    if found is None:
        from shardmill.infra.extras import missing_library

        return missing_library(error)
    return ImportError(f"{found[0]} hides {found[1]}: {error} ({_REMEDY})")


def _hiding_file(error: BaseException) -> tuple[str, str] | None:
    """Return a file of the user that may have caused an error, and the file or module that it hides."""
    frames = list(_frames(error.__traceback__))
    loaded = [(name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
    failed: list[tuple[object, object]] = [(name, file) for name, file, _ in frames]
    if isinstance(error, SyntaxError) and error.filename:
        failed.append((os.path.splitext(os.path.basename(error.filename))[0], error.filename))
    if isinstance(error, ImportError):
        failed.append((error.name, error.path))
    if isinstance(error, AttributeError):
        failed.append((getattr(error.obj, "__name__", None), getattr(error.obj, "__file__", None)))
    is_import = any(code == "<module>" for _, _, code in frames[1:])
    for name, file in dict.fromkeys([*failed, *(loaded if is_import else [])]):
        if not isinstance(name, str) or not isinstance(file, str) or not name.isidentifier():
            continue
        # Where a library fails at import, nothing may point to a module of Python that is hidden from it.
        if (name, file) not in failed and name not in sys.stdlib_module_names and name not in str(error):
            continue
        hidden = _hidden_by(name, file)
        if hidden is not None:
            return file, hidden
    return None


def _frames(trace: TracebackType | None) -> Iterator[tuple[object, str, str]]:
    while trace is not None:
        code = trace.tb_frame.f_code
        yield trace.tb_frame.f_globals.get("__name__"), code.co_filename, code.co_name
        trace = trace.tb_next


def _hidden_by(name: str, file: str) -> str | None:
    """Return the module of a library or of Python whose place a file of the user takes."""
    folder, base = os.path.split(os.path.abspath(file))
    if base == "__init__.py":
        folder = os.path.dirname(folder)
    if (
        not os.path.isfile(file)
        or os.path.basename(folder) in _OF_LIBRARIES
        or folder == os.path.dirname(os.__file__)
    ):
        return None
    others = [place for place in sys.path if os.path.abspath(place) != folder]
    spec = PathFinder.find_spec(name, others)
    if spec is None or spec.origin is None:
        return None
    return f"{name} of Python" if name in sys.stdlib_module_names else spec.origin
