"""Errors of a user's own code, of ours, and of the machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.errors import ConfigError, DataError
from shardmill.infra.own_code import faults_of_own_code
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
    assert remedy.startswith("mend it: it belongs to your own run.callbacks, 'own_package.callbacks:make'")


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
