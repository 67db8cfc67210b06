"""Exceptions of Python inside a user's own kind of source."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources import list_inputs, open_reader
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.infra.errors import ConfigError

CODE = """
import json

def list_inputs(folder, config):
    return json.loads("{no JSON")

class Reader:
    def read(self, file):
        if file.uri == "one":
            raise ValueError("only this image")
        return self.gone

def open_reader(folder, config, scratch):
    return Reader()
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a package that can be imported."""
    folder = tmp_path / "own_package"
    folder.mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "own_package"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (CODE, r"own_package/kind\.py, line 5, failed: JSONDecodeError: "),
        ("import os\n1 / 0\n", r"own_package/kind\.py, line 2, failed: ZeroDivisionError: division by zero"),
        ("import no_such_module\n", r"own_package/kind\.py, line 1, failed: .*no_such_module"),
        ("\n\nif:\n", r"own_package/kind\.py, line 3, failed: SyntaxError: "),
    ],
)
def test_a_failure_names_its_line(code: str, fault: str, package: Path, tmp_path: Path) -> None:
    (package / "kind.py").write_text(code)
    config = PrepareConfig.model_validate({"source": {"kind": "own_package.kind"}})
    with pytest.raises(ConfigError, match=fault) as error:
        list_inputs(SourceFolder(str(tmp_path)), config)
    assert "mend it" in str(error.value.remedy)


def test_a_failure_of_our_code_stays_one(package: Path, tmp_path: Path) -> None:
    (package / "kind.py").write_text(
        "from shardmill.infra.readable import counted\n"
        "def list_inputs(folder, config):\n    return counted(None, 'image')\n"
    )
    config = PrepareConfig.model_validate({"source": {"kind": "own_package.kind"}})
    with pytest.raises(TypeError):
        list_inputs(SourceFolder(str(tmp_path)), config)


def test_a_reader_that_fails_names_its_line(package: Path, tmp_path: Path) -> None:
    (package / "kind.py").write_text(CODE)
    config = PrepareConfig.model_validate({"source": {"kind": "own_package.kind"}})
    reader = pickle.loads(pickle.dumps(open_reader(SourceFolder(str(tmp_path)), config)))
    with pytest.raises(ConfigError, match=r"own_package/kind\.py, line 11, failed: AttributeError: "):
        reader.read(FileRef("all", 0, 0))
    with pytest.raises(ValueError, match="only this image"):
        reader.read(FileRef("one", 0, 0))
