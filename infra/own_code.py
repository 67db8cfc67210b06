"""Find, check and import the code of a user that a setting names, and name its faults.

A module of the user is looked up where Python looks (installed packages, PYTHONPATH), then in the working
directory. That is the working directory of the command, of the pool, of the ranks and of data workers alike;
a run of a worker has the one that its parameter ``code`` names.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from shardmill.infra.errors import ConfigError, ShardmillError, UnusableInput
from shardmill.infra.progress import log

_OURS = "shardmill"
_EARLIER = ("beam_jobs", "flows", "infra", "training")  # the names of our packages in release 0.1.0
# A library says so of its device or network; the same code may succeed the next time.
_OF_THE_MACHINE = re.compile(r"cuda|cudnn|cublas|nccl|gloo|hip error|out of memory", re.IGNORECASE)
# TensorFlow raises these for an operation of a graph, and says in the text where the operation was made.
_OF_A_GRAPH = ("InvalidArgumentError", "FailedPreconditionError", "OutOfRangeError", "UnimplementedError",
               "UnknownError")  # fmt: skip
_PLACE = re.compile(r'File "([^"\n]+)", line (\d+)')


def _top_package(module: str) -> str:
    return module.partition(".")[0]


def is_own(name: str) -> bool:
    """Tell whether a setting names code of the user: names without dot and colon are those of Shardmill."""
    return ("." in name or ":" in name) and _top_package(name) != _OURS


@dataclass(frozen=True, slots=True)
class OwnCode:
    """A function in a module of the user.

    Methods raise ``ConfigError``: there is no such module, it has no such function or fails, or the name of a
    module has two meanings.

    Attributes:
        setting: the setting with its value, for errors.
        module: the dotted name of the module.
        function: the name of the function.
        page: the page of the documentation about such code.
    """

    setting: str
    module: str
    function: str
    page: str

    @classmethod
    def named(cls, key: str, value: str, page: str, function: str = "") -> Self:
        """Return the code that a setting names as ``module:function``.

        Args:
            key: the setting.
            value: its value.
            page: the page of the documentation about such code.
            function: the function of a value without a colon; empty: each value needs a colon.

        Raises:
            ConfigError: the value has another form.
        """
        module, colon, given = value.partition(":")
        found = given if colon else function
        if not found.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
            forms = "module:function" if not function else "package.module, or module:function"
            raise ConfigError(f"{key} = {value!r} is no name of code", f"give {forms}; see {page}")
        return cls(f"{key} = {value!r}", module, found, page)

    def is_below(self, folder: Path) -> bool:
        """Tell whether the module lies below a folder."""
        return Path(str(self._found().origin)).is_relative_to(folder)

    def check(self) -> None:
        """Check that the module is there and has the function, without running it."""
        file = self._found().origin
        tree = _parsed(file)
        if tree is not None and not any(_binds(node, self.function) for node in ast.walk(tree)):
            raise self._lacks_function(file)

    def load(self) -> ModuleType:
        """Import the module, which has the function."""
        self._found()
        here = Path.cwd()
        if _located(self.module, here) is not None and here not in map(Path.absolute, map(Path, sys.path)):
            sys.path.append(str(here))  # last: other files there must not hide libraries
        importlib.invalidate_caches()
        with faults_of_own_code({self.module: self.setting}, self.page):
            module = importlib.import_module(self.module)
        if not callable(getattr(module, self.function, None)):
            raise self._lacks_function(module.__file__)
        return module

    def load_function(self) -> Callable[..., Any]:
        """Import the module and return the function."""
        found: Callable[..., Any] = getattr(self.load(), self.function)
        return found

    def _found(self) -> ModuleSpec:
        here = Path.cwd()
        own, chosen = _located(self.module, here), _located(self.module)
        if own is not None:
            self._check_meaning(self.module, own, self.setting)
            if self.module not in sys.modules:
                self._check_imports(own, here)
        found = own or chosen
        if found is None:
            raise ConfigError(
                f"{self.setting}: there is no module {self.module!r} in {here}, and none is installed",
                "run the command in the folder of your code (a flow of a worker has the parameter code), or "
                f"install it on each machine that uses it; see {self.page}",
            )
        return found

    def _check_imports(self, spec: ModuleSpec, here: Path) -> None:
        """Check that no import in the user's files means a file of his and one of a library."""
        seen, waiting = {self.module}, [str(spec.origin)]
        while waiting:
            file = waiting.pop()
            for name in _imports(file, here):
                own = None if name in seen else _located(name, here)
                seen.add(name)
                if own is not None:
                    self._check_meaning(name, own, f"{self.setting}: {file} imports {name}")
                    if _top_package(name) != _OURS:  # which is the user's folder in a checkout
                        waiting.append(str(own.origin))

    def _check_meaning(self, name: str, own: ModuleSpec, where: str) -> None:
        """Check that Python finds a module of the user by its name, and none of a library."""
        chosen = _located(name, Path.cwd(), last=True)
        if chosen is not None and os.path.realpath(str(chosen.origin)) == os.path.realpath(str(own.origin)):
            return
        package = _top_package(name)
        other = _of_package(package, sys.path)
        is_file = other is not None and (other.has_location or other.submodule_search_locations)
        raise ConfigError(
            f"{where}, and {package!r} has two meanings: {own.origin}, and "
            + (_place_of_spec(other) if other is not None and is_file else "a module of Python itself"),
            f"give yours another name; or set PYTHONPATH={Path.cwd()} if {package!r} means yours everywhere",
        )

    def _lacks_function(self, file: str | None) -> ConfigError:
        return ConfigError(f"{self.setting}: {file} has no function {self.function}", f"see {self.page}")


def _located(name: str, folder: Path | None = None, *, last: bool = False) -> ModuleSpec | None:
    """Return where a module lies; its packages are not imported.

    Args:
        name: its dotted name.
        folder: look in this folder alone; None: where Python looks.
        last: look in the folder last, after all places where Python looks.

    Returns:
        None if there is no such module, or it is a folder without code.
    """
    package, *rest = name.split(".")
    if folder is None or last:
        spec = _of_package(package, [*sys.path, *([] if folder is None else [str(folder)])])
    else:
        spec = PathFinder.find_spec(package, [str(folder)])
    for part in rest:
        folders = None if spec is None else spec.submodule_search_locations
        spec = None if folders is None else PathFinder.find_spec(part, list(folders))
    return spec if spec is not None and spec.origin is not None else None


def _of_package(package: str, path: Sequence[str]) -> ModuleSpec | None:
    for finder in sys.meta_path:
        given = list(path) if finder is PathFinder else None
        found = finder.find_spec(package, given) if hasattr(finder, "find_spec") else None
        if found is not None:
            return found
    return None


def _place_of_spec(spec: ModuleSpec) -> str:
    return spec.origin or next(iter(spec.submodule_search_locations or ()), spec.name)


def _parsed(file: str | None) -> ast.Module | None:
    """Return the syntax tree of a file; None: it is no source, or its import will report what is wrong."""
    try:
        return None if file is None or not file.endswith(".py") else ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def _binds(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name in (name, "__getattr__")
    if isinstance(node, ast.alias):
        return (node.asname or node.name) in (name, "*")
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


def _imports(file: str, folder: Path) -> Iterator[str]:
    """Yield the dotted name of each module that a file below a folder may import, and of its packages."""
    package = Path(file).relative_to(folder).parent.parts if file.startswith(f"{folder}{os.sep}") else ()
    for node in ast.walk(_parsed(file) or ast.Module([], [])):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = [*above, *(node.module or "").split(".")]
            names = [[*base, alias.name] for alias in node.names]
        else:
            continue
        for parts in ([part for part in name if part] for name in names):
            yield from (".".join(parts[: end + 1]) for end in range(len(parts)))


@contextmanager
def faults_of_own_code(
    named: Mapping[str, str], page: str, passed: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Turn an unexpected exception from a package of the user into an error that names file and line.

    An exception belongs to that package if its code, or a library that it called, raised it. The traceback
    goes to the log.

    Args:
        named: module of the user -> the setting that names it. Modules of Shardmill are left out.
        page: the page of the documentation about such code.
        passed: exceptions that stay as they are.

    Raises:
        ConfigError: a package of the user failed, or ended the process.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        is_meant = isinstance(error, (ShardmillError, UnusableInput, MemoryError, *passed))
        packages = {_top_package(name): setting for name, setting in named.items()}
        packages = {name: setting for name, setting in packages.items() if name != _OURS}
        found = None if is_meant else place_of(error, packages)
        if found is None:
            raise
        log("".join(traceback.format_exception(error)).rstrip(), level="error")
        place, package = found
        message = (str(error).strip().splitlines() or [""])[0]
        earlier = _top_package(error.name or "") if isinstance(error, ImportError) else ""
        moved = f"; {earlier} of Shardmill is shardmill.{earlier} now" if earlier in _EARLIER else ""
        raise ConfigError(
            f"{place}, failed: {type(error).__name__}: {message}",
            f"mend it: it belongs to {packages[package]} ({page}){moved}",
        ) from error


def place_of(error: BaseException, packages: Mapping[str, str]) -> tuple[str, str] | None:
    """Return file and line at which an exception arose in one of some packages, and the package.

    None: our code raised it, or the machine is at fault.
    """
    message = str(error)
    if isinstance(error, SyntaxError) and error.filename:
        package = _package_of(error.filename, packages)
        return None if package is None else (f"{error.filename}, line {error.lineno}", package)
    if isinstance(error, RuntimeError) and _OF_THE_MACHINE.search(message):
        return None
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        package = _top_package(str(frame.f_globals.get("__name__", "")))
        if package in packages:
            return f"{frame.f_code.co_filename}, line {line}", package
        if package == _OURS and frame.f_code.co_name != faults_of_own_code.__name__:
            break
    if type(error).__name__ in _OF_A_GRAPH:
        for file, number in reversed(_PLACE.findall(message)):
            package_of_file = _package_of(file, packages)
            if package_of_file is not None:
                return f"{file}, line {number}", package_of_file
    return None


def _package_of(file: str, packages: Mapping[str, str]) -> str | None:
    """Return which of some packages a file of code belongs to."""
    for package in packages:
        module = sys.modules.get(package)
        folders = [Path(folder) for folder in getattr(module, "__path__", ())]
        if Path(file).stem == package or any(folder in Path(file).parents for folder in folders):
            return package
    return None
