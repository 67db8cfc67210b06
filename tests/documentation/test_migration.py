"""The page on old tutorials: TensorFlow has each old name as the page says, and each replacement runs."""

from __future__ import annotations

import functools
import os
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.documentation.blocks import ROOT, blocks
from tests.documentation.command_lines import problem_of, problem_of_settings
from tests.samples.datasets.published import coloured, publish

PAGE = ROOT / "docs" / "migration.md"
_ROW = re.compile(
    r"^\| (`.*) \| (gone|v1|moved|deprecated|see below)(?: \((.*)\))? \| (.*) \|$", re.MULTILINE
)
# Names without a notice of their own; the documentation of TensorFlow calls them deprecated.
_DEPRECATED_IN_THE_GUIDE = {"tf.keras.preprocessing.image.ImageDataGenerator"}
_CODE = re.compile(r"`([^`]+)`")
ROWS = _ROW.findall(PAGE.read_text(encoding="utf-8"))


def test_every_row_is_tested() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert len(lines) == len(ROWS) > 20


def _found(name: str) -> object | None:
    """The object of TensorFlow with a name such as ``tf.io.gfile.glob``; None if there is none."""
    import tensorflow as tf

    names = {"tf": tf, "Dataset": tf.data.Dataset, "v1": tf.compat.v1.data}
    first, *rest = name.split(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return functools.reduce(getattr, rest, names[first])
        except (AttributeError, ImportError):
            return None


def _state(name: str) -> set[str]:
    """The possible statements of the page about a name."""
    found = _found(name)
    if found is None:
        below_v1 = re.sub(r"^(tf|Dataset)\b", r"\1.compat.v1", name).replace(
            "Dataset.compat.v1", "v1.Dataset"
        )
        return {"v1"} if _found(below_v1) is not None else {"gone"}
    documented = f"{found.__doc__} {getattr(found, '__init__', found).__doc__}"
    noted = "DEPRECATED" in documented or name in _DEPRECATED_IN_THE_GUIDE
    return {"deprecated"} if noted else {"there"}


@pytest.mark.parametrize(("tutorial", "state", "moved", "here"), ROWS, ids=[row[0][:60] for row in ROWS])
def test_tensorflow_has_the_old_name_as_the_page_says(
    tutorial: str, state: str, moved: str, here: str
) -> None:
    names = [code for code in _CODE.findall(tutorial) if code.startswith(("tf.", "Dataset."))]
    assert names
    if state == "see below":
        assert _found("tf.contrib") is None
        assert _found("tf.data.experimental.AUTOTUNE") == _found("tf.data.AUTOTUNE")
    elif state == "moved":
        assert all(_found(name) is None for name in names)
        assert all(_found(name) is not None for name in _CODE.findall(moved)), moved
    else:
        assert {name: state for name in names if state not in _state(name)} == {}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The names that the page's first block defines, over a small published dataset."""
    folder = tmp_path_factory.mktemp("migration")
    publish(folder / "datasets", coloured({"train": {"cat": 70, "dog": 40}}), name="photos")
    names: dict[str, Any] = {}
    here = Path.cwd()
    os.chdir(folder)
    try:
        exec(next(block.text for block in blocks(PAGE) if block.kind == "python"), names)
    finally:
        os.chdir(here)
    return {**names, "folder": folder}


@pytest.mark.parametrize("here", [row[3] for row in ROWS], ids=[row[0][:60] for row in ROWS])
def test_the_replacement_works(here: str, reader: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(reader["folder"])
    ran = 0
    for code in _CODE.findall(here):
        if code.startswith("shardmill "):
            assert problem_of(code) is None
        elif code.startswith("--set "):
            pairs = re.findall(r"--set (?:'([^']+)'|(\S+))", code)
            assert problem_of_settings(["".join(pair) for pair in pairs]) is None
        elif "(" in code:
            exec(code, reader)
        else:
            continue
        ran += 1
    assert ran
