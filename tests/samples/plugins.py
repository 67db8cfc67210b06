"""Distributions with plugins: the example of ``plugin_package``, installed by pip, and small ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).with_name("plugin_package")
ROOT = Path(__file__).parents[2]


def install_example(target: Path) -> Path:
    """Install the example into a folder; return it."""
    copy = shutil.copytree(PACKAGE, target.with_name("plugin_package"))  # a build leaves files there
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation",
               "--disable-pip-version-check", "--target", target, copy]  # fmt: skip
    subprocess.run(command, check=True, timeout=300)
    return target


def add_distribution(
    target: Path,
    name: str,
    entry_points: Mapping[str, Mapping[str, str]],
    files: Mapping[str, str] | None = None,
) -> None:
    """Put a distribution into a folder.

    Args:
        target: the folder.
        name: its name and version.
        entry_points: group -> name -> value.
        files: path -> content, of its modules.
    """
    distribution, version = name.split()
    about = target / f"{distribution.replace('-', '_')}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    lines = [
        line
        for group, points in entry_points.items()
        for line in (f"[{group}]", *(f"{point} = {value}" for point, value in points.items()), "")
    ]
    (about / "entry_points.txt").write_text("\n".join(lines))
    for path, content in (files or {}).items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(content)


def environment(*targets: Path) -> dict[str, str]:
    """The environment of a process that has the distributions in some folders."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *targets)))}


def python(code: str, *arguments: object, targets: tuple[Path, ...] = ()) -> str:
    """Run a program with the distributions in some folders; return its standard output."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(
        command, env=environment(*targets), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout
