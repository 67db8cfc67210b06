"""The source distribution and the wheels hold every file once, without links, under the name shardmill."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import BytesParser
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.distribution.building import Refused, build, build_wheels, make_plain
from tests.distribution.pythons import VERSIONS, find_pythons
from tests.distribution.release import check_release
from tests.samples.installations import PROJECT
from tests.samples.repositories_of_users import ABOUT, FOLDERS, ROOT, copy_checkout

_MADE = {"PKG-INFO", "setup.cfg"}
_EPOCH = 1_700_000_000

Files = dict[str, bytes]  # path -> content


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The archives that are built from a copy of the checkout, all with files of one time."""
    checkout = copy_checkout(tmp_path_factory.mktemp("checkout"))
    (checkout / "tests").mkdir()
    (checkout / "tests" / "test_nothing.py").write_text("")
    return build(checkout, checkout / "dist", _EPOCH)


@pytest.fixture(scope="module")
def sdist(archives: list[Path]) -> Files:
    """The files of the source distribution."""
    with tarfile.open(archives[0]) as tar:
        assert all(member.isfile() or member.isdir() for member in tar), "no links"
        found = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
        return {name.partition("/")[2]: stream.read() for name, stream in found.items() if stream}


def of_wheel(path: Path) -> Files:
    """The files of a wheel."""
    with zipfile.ZipFile(path) as files:
        return {name: files.read(name) for name in files.namelist()}


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


def test_each_wheel_has_every_file_under_the_import_name_and_nothing_else(archives: list[Path]) -> None:
    for path in archives[1:]:
        wheel = of_wheel(path)
        ours = {name for name in wheel if ".dist-info/" not in name}
        compiled = ours & {f"shardmill/infra/native/_{name}.so" for name in ("area", "bilinear")}
        assert {name: wheel[name] for name in ours - compiled} == of_the_checkout()
        tag = "any" if not compiled else sysconfig.get_platform().replace("-", "_").replace(".", "_")
        assert path.name == f"shardmill-{PROJECT['version']}-py3-none-{tag}.whl"
        (top,) = (content for name, content in wheel.items() if name.endswith("top_level.txt"))
        assert top.split() == [b"shardmill"]


def test_a_wheel_is_for_every_machine_and_another_is_compiled(archives: list[Path]) -> None:
    compiled = [any(name.endswith(".so") for name in of_wheel(path)) for path in archives[1:]]
    assert compiled == ([False, True] if shutil.which("gcc") else [False])


def test_without_a_compiler_the_wheel_is_for_every_machine(
    archives: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "false")
    wheels = build_wheels(archives[0], tmp_path, _EPOCH, natives=[""])
    assert [path.name for path in wheels] == [archives[1].name]
    assert wheels[0].read_bytes() == archives[1].read_bytes()


def test_the_source_distribution_has_every_file_once(sdist: Files) -> None:
    kept = {name for name in sdist if not name.startswith("shardmill.egg-info/")} - _MADE
    assert kept == {*of_the_checkout(), *ABOUT}


def test_another_user_makes_the_same_source_distribution(archives: list[Path], tmp_path: Path) -> None:
    with tarfile.open(archives[0]) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    other = tmp_path / "other.tar.gz"
    with tarfile.open(other, "w:gz") as tar:
        (top,) = (tmp_path / "unpacked").iterdir()
        tar.add(top, top.name, filter=_of_another_user)
    make_plain(other, _EPOCH)
    assert other.read_bytes() == archives[0].read_bytes()


def _of_another_user(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid, member.gname, member.mtime, member.mode = 1234, "them", 1_800_000_000, member.mode & 0o700
    return member


def test_the_metadata_name_the_versions_that_pip_admits(sdist: Files) -> None:
    about = BytesParser().parsebytes(sdist["PKG-INFO"])
    admitted = SpecifierSet(str(about["Requires-Python"]))
    assert list(VERSIONS) == [f"3.{minor}" for minor in range(30) if f"3.{minor}" in admitted]
    extras = set(PROJECT["optional-dependencies"])
    assert set(about.get_all("Provides-Extra") or []) == {extra.replace("_", "-") for extra in extras}


def test_this_python_is_found() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = find_pythons([version, "3.2"])
    assert found.keys() == {version}
    done = subprocess.run([found[version], "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"Python {version}.")


def test_every_package_of_an_extra_has_an_exact_version() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pinned = {canonicalize_name(name): version for name, version in pins.items()}
    for extra in ("dev", "ray"):
        for line in PROJECT["dependencies"] + PROJECT["optional-dependencies"][extra]:
            requirement = Requirement(line)
            if requirement.name != PROJECT["name"]:
                assert pinned[canonicalize_name(requirement.name)] in requirement.specifier, line


RELEASED = "# Changelog\n\n## Unreleased\n\n"
DATED = f"## {PROJECT['version']} (2026-01-02)\n\n- It reads.\n"


@pytest.mark.parametrize(
    ("changelog", "remedy"),
    [
        (f"{RELEASED}- It writes.\n\n{DATED}", "move the entries of 'Unreleased'"),
        (f"{RELEASED}## 0.0.9 (2026-01-02)\n", f"should be '{PROJECT['version']} ("),
        (f"# Changelog\n\n{DATED}", "first heading"),
        (f"{RELEASED}{DATED}", "commit or remove these changes first"),
    ],
)
def test_a_release_is_refused_until_it_is_described_and_committed(
    changelog: str, remedy: str, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "CHANGELOG.md").write_text(changelog)
    shutil.copy2(ROOT / "CITATION.cff", tmp_path)
    with pytest.raises(Refused, match=re.escape(remedy)):
        check_release(tmp_path)
