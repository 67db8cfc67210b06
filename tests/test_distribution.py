"""The source distribution and the wheel hold every file once, without links, under the name shardmill."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import PurePosixPath

import pytest

from tests.samples.repositories_of_users import ABOUT, FOLDERS, ROOT, copy_checkout

_MADE = {"PKG-INFO", "setup.cfg"}

Files = dict[str, bytes]  # path -> content


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Files, Files]:
    """The files of the sdist, and of the wheel that is built from it."""
    checkout = copy_checkout(tmp_path_factory.mktemp("checkout"))
    (checkout / "tests").mkdir()
    (checkout / "tests" / "test_nothing.py").write_text("")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", checkout / "dist", checkout]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    (archive,), (wheel,) = ((checkout / "dist").glob(f"*.{ending}") for ending in ("tar.gz", "whl"))
    with tarfile.open(archive) as tar:
        assert all(member.isfile() or member.isdir() for member in tar), "no links"
        found = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
        sdist = {name.partition("/")[2]: stream.read() for name, stream in found.items() if stream}
    with zipfile.ZipFile(wheel) as files:
        return sdist, {name: files.read(name) for name in files.namelist()}


def of_the_checkout() -> Files:
    """Path below the import name -> content."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    paths += [path for path in (ROOT / "shardmill").iterdir() if path.is_file()]
    names = {
        path.relative_to(ROOT): path
        for path in paths
        if path.suffix != ".so" and "__pycache__" not in path.parts
    }
    return {
        str(PurePosixPath("shardmill", *name.parts[name.parts[0] == "shardmill" :])): path.read_bytes()
        for name, path in names.items()
    }


def test_the_wheel_has_every_file_under_the_import_name_and_nothing_else(built: tuple[Files, Files]) -> None:
    _, wheel = built
    ours = {name: content for name, content in wheel.items() if ".dist-info/" not in name}
    compiled = [name for name in ours if name.endswith(".so")]
    assert all(name.startswith("shardmill/infra/native/_area.") for name in compiled)
    assert len(compiled) == 1 or shutil.which("gcc") is None
    assert {name: content for name, content in ours.items() if name not in compiled} == of_the_checkout()
    (top,) = (content for name, content in wheel.items() if name.endswith("top_level.txt"))
    assert top.split() == [b"shardmill"]


def test_the_source_distribution_has_every_file_once(built: tuple[Files, Files]) -> None:
    sdist, _ = built
    kept = {name for name in sdist if not name.startswith("shardmill.egg-info/")} - _MADE
    assert kept == {*of_the_checkout(), *ABOUT}
