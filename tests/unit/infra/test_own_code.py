"""Errors of a user's own code, of ours, and of the machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.errors import ConfigError, DataError
from shardmill.infra.own_code import OwnCode, faults_of_own_code
from shardmill.infra.splitmix import splitmix64

CODE = """
import json
from shardmill.infra.splitmix import splitmix64

def through_a_library():
    return json.loads("{no JSON")

def through_ours():
    return splitmix64("no array")

def raised(error):
    raise error
"""
SETTING = "run.callbacks, 'own_package.callbacks:make'"
NAMED = {"own_package.callbacks": SETTING}


class InvalidArgumentError(Exception):
    """As TensorFlow names it."""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module of a user."""
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "callbacks.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    from own_package import callbacks  # type: ignore[import-not-found]

    yield callbacks
    for name in [name for name in sys.modules if name.split(".")[0] == "own_package"]:
        del sys.modules[name]


def guarded(function: Any, *arguments: Any) -> None:
    with faults_of_own_code(NAMED, "docs/a-page.md"):
        function(*arguments)


def test_an_error_from_the_users_code_names_file_line_and_setting(own: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"own_package/callbacks\.py, line 6, failed: JSONDecodeError: "
    ) as caught:
        guarded(own.through_a_library)
    assert caught.value.exit_code == 2
    remedy = str(caught.value.remedy)
    assert remedy.startswith("mend it: it belongs to run.callbacks, 'own_package.callbacks:make'")


@pytest.mark.parametrize("error", [KeyError("x"), RuntimeError("a wrong shape"), SystemExit(3)])
def test_any_error_of_the_users_code_is_one(own: Any, error: BaseException) -> None:
    with pytest.raises(ConfigError, match=r"line 12, failed: "):
        guarded(own.raised, error)


@pytest.mark.parametrize(
    "error",
    [
        DataError("meant"),
        MemoryError(),
        RuntimeError("CUDA error: uncorrectable ECC error"),
        KeyboardInterrupt(),
    ],
)
def test_errors_that_are_meant_and_those_of_the_machine_stay(own: Any, error: BaseException) -> None:
    with pytest.raises(type(error)):
        guarded(own.raised, error)


def test_errors_of_our_code_stay(own: Any) -> None:
    for function, arguments in ((own.through_ours, ()), (splitmix64, ("no array",))):
        with pytest.raises((TypeError, AttributeError)):
            guarded(function, *arguments)


def test_an_operation_of_a_graph_says_where_it_was_made(own: Any) -> None:
    def run(file: str) -> None:
        raise InvalidArgumentError(f'indices[0] = 9\nDetected at node:\n  File "{file}", line 11, in call\n')

    with pytest.raises(ConfigError, match=r"callbacks\.py, line 11, failed: InvalidArgumentError: indices"):
        guarded(run, own.__file__)
    with pytest.raises(InvalidArgumentError):
        guarded(run, "/lib/keras/layers.py")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory of a user, which is not on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def written(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def own_code(name: str) -> OwnCode:
    return OwnCode.named("model.name", name, "docs/a-page.md", "build")


BUILD = "def build(spec):\n    return 'built'\n"


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("mine_a:build", {"mine_a": BUILD}),
        ("mine_b:make", {"mine_b": "make = lambda spec: 'built'\n"}),
        ("mine_c.net", {"mine_c__net": "from mine_c.parts import build\n", "mine_c__parts": BUILD}),
        ("mine_d.net:build", {"mine_d__net": "from .parts import *\n", "mine_d__parts": BUILD}),
        ("mine_e.net", {"mine_e__net": "import mine_f\nbuild = mine_f.build\n", "mine_f": BUILD}),
    ],
)
def test_code_is_found_in_the_working_directory(name: str, files: dict[str, str], folder: Path) -> None:
    written(folder, **files)
    code = own_code(name)
    code.check()
    assert code.load_function()(None) == "built"
    assert sys.path[-1] == str(folder), "last: other files there hide nothing"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine", "is no name of code"),
        ("mine:", "is no name of code"),
        ("mine:a.b", "is no name of code"),
        ("my-models:build", "is no name of code"),
        ("nowhere:build", "there is no module 'nowhere' in /"),
        ("mine_g.missing", "there is no module 'mine_g.missing' in /"),
        ("mine_g.net:make", r"mine_g/net\.py has no function make"),
        ("json.tool", r"json/tool\.py has no function build"),
    ],
)
def test_what_is_missing_is_named(name: str, message: str, folder: Path) -> None:
    written(folder, mine_g__net=BUILD)
    with pytest.raises(ConfigError, match=message):
        OwnCode.named("model.name", name, "docs/a-page.md", "build" if "." in name else "").check()


@pytest.mark.parametrize(
    ("name", "files", "other"),
    [
        ("random:build", {"random": BUILD}, "/random.py"),
        ("numpy.net", {"numpy__net": BUILD}, "/numpy/__init__.py"),
        ("time:build", {"time": BUILD}, "a module of Python itself"),
        ("mine_h:build", {"mine_h": f"import random\n{BUILD}", "random": "x = 1\n"}, "/random.py"),
        (
            "mine_i:build",
            {"mine_i": f"from mine_j import x\n{BUILD}", "mine_j": "from numpy import x\n", "numpy__x": ""},
            "/numpy/__init__.py",
        ),
    ],
)
def test_a_name_with_two_meanings_is_refused(
    name: str, files: dict[str, str], other: str, folder: Path
) -> None:
    written(folder, **files)
    with pytest.raises(ConfigError, match="has two meanings") as caught:
        own_code(name).check()
    assert str(folder) in caught.value.message
    assert other in caught.value.message
    assert "another name" in str(caught.value.remedy)


def test_folders_of_data_have_no_meaning(folder: Path) -> None:
    """Libraries that own code imports may share their names with folders of images."""
    for name in ("numpy", "json", "datasets", "mine_k"):
        (folder / name / "cat").mkdir(parents=True)
        (folder / name / "cat/1.jpg").write_bytes(b"")
    written(folder, mine_l=f"import json, numpy\n{BUILD}")
    code = own_code("mine_l:build")
    code.check()
    assert code.load().json.__file__ == json.__file__
    with pytest.raises(ConfigError, match="there is no module 'mine_k'"):
        own_code("mine_k:build").check()


def test_the_first_place_of_the_path_decides(folder: Path) -> None:
    """As PYTHONPATH says; a package of the same name that a library left there does not matter then."""
    for place in (folder / "toolbox", folder / "library/toolbox"):
        place.mkdir(parents=True)
        (place / "__init__.py").write_text("")
    written(folder, toolbox__nets=BUILD)
    sys.path.append(str(folder / "library"))
    with pytest.raises(ConfigError, match="'toolbox' has two meanings") as caught:
        own_code("toolbox.nets").check()
    assert f"PYTHONPATH={folder}" in str(caught.value.remedy)
    sys.path.insert(0, str(folder))
    assert own_code("toolbox.nets").load_function()(None) == "built"


def test_an_error_while_the_module_is_imported_names_it(folder: Path) -> None:
    written(folder, mine_m=f"import no_such_library\n{BUILD}", mine_n=f"{BUILD}  x = 1\n")
    with pytest.raises(ConfigError, match=r"mine_m\.py, line 1, failed: ModuleNotFoundError"):
        own_code("mine_m:build").load()
    with pytest.raises(ConfigError, match=r"mine_n\.py, line 3, failed: IndentationError"):
        own_code("mine_n:build").load()


def test_code_for_an_earlier_release_is_told_the_new_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).parents[3]  # has a folder training, as no installed Shardmill has
    monkeypatch.setattr(sys, "path", [place for place in sys.path if Path(place).resolve() != root])
    for name in [name for name in sys.modules if name.partition(".")[0] == "training"]:
        monkeypatch.delitem(sys.modules, name)  # code that another test ran from the root imported it
    written(folder, mine_o=f"from training.models import ModelSpec\n{BUILD}")
    with pytest.raises(ConfigError, match="No module named 'training'") as caught:
        own_code("mine_o:build").load()
    assert "training of Shardmill is shardmill.training now" in str(caught.value.remedy)
