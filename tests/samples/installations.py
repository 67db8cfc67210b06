"""Environments that have the package with some of its extras alone: links to what is installed here."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def closure(*extras: str) -> set[str]:
    """The distributions that the package with some extras needs, directly or not, by canonical names."""
    wanted = [Requirement(line) for line in PROJECT["dependencies"]]
    for extra in extras:
        wanted += [Requirement(line) for line in PROJECT["optional-dependencies"][extra]]
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        if name == canonicalize_name(PROJECT["name"]):
            wanted += [
                Requirement(line)
                for extra in requirement.extras
                for line in PROJECT["optional-dependencies"][extra]
            ]
            continue
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        found.add(name)
        for extra in ("", *requirement.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                others = [Requirement(line) for line in needs]
                wanted += [
                    one for one in others if one.marker is None or one.marker.evaluate({"extra": extra})
                ]
    return found


def installation(folder: Path, *extras: str) -> Path:
    """Make an environment with the base of the package and some extras; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "checkout.pth").write_text(f"{ROOT}\n")
    for name in closure(*extras):
        files = distribution(name).files or []
        for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}:
            source, link = Path(str(distribution(name).locate_file(top))), site / top
            if source.is_dir() and link.is_symlink():  # a namespace that several distributions share
                shared = [link.resolve(), source]
                link.unlink()
                link.mkdir()
                for place in shared:
                    for part in place.iterdir():
                        (link / part.name).symlink_to(part)
            elif source.is_dir() and link.is_dir():
                for part in source.iterdir():
                    if not (link / part.name).exists():
                        (link / part.name).symlink_to(part)
            elif source.exists() and not link.exists():
                link.symlink_to(source)
    return folder / "bin" / "python"
