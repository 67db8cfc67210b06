"""The interpreters of this machine on which the package is tried."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.samples.installations import PROJECT

# The versions that the metadata of the package name, such as "3.12".
VERSIONS = tuple(
    match[1]
    for line in PROJECT["classifiers"]
    if (match := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))
)
# Fails where environments cannot be made, and with a build that has no lock (its wheels are others).
_CHECK = """\
import ensurepip, sys, sysconfig, venv
assert not sysconfig.get_config_var("Py_GIL_DISABLED")
print("%d.%d" % sys.version_info[:2])
"""


def find_pythons(versions: Iterable[str] = VERSIONS) -> dict[str, Path]:
    """Version -> an interpreter that can make environments, for each version that is here."""
    found = {version: next(_usable(version), None) for version in versions}
    return {version: python for version, python in found.items() if python is not None}


def _usable(version: str) -> Iterator[Path]:
    for candidate in _candidates(version):
        try:
            done = subprocess.run(
                [candidate, "-I", "-c", _CHECK], capture_output=True, text=True, timeout=30, check=False
            )
        except OSError:
            continue
        if done.stdout.strip() == version:
            yield candidate


def _candidates(version: str) -> Iterator[Path]:
    """This interpreter's own, then ``PATH``, then what pyenv installed, the newest first."""
    name = f"python{version}"
    yield Path(sys.base_prefix, "bin", name)
    if on_path := shutil.which(name):
        yield Path(on_path)
    installed = _pyenv_root() / "versions"
    releases = [path for path in installed.glob(f"{version}.*") if re.fullmatch(r"[\d.]+", path.name)]
    for folder in sorted(releases, key=lambda path: int(path.name.rpartition(".")[2]), reverse=True):
        yield folder / "bin" / name


def _pyenv_root() -> Path:
    if pyenv := shutil.which("pyenv"):
        done = subprocess.run([pyenv, "root"], capture_output=True, text=True, timeout=30, check=False)
        if done.returncode == 0:
            return Path(done.stdout.strip())
    return Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
