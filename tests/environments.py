"""Environments with other packages than ours: made on first use, kept, made anew when their list changes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path


class NotInstallable(Exception):
    """An environment cannot be made here; says why in one line."""


def environment(folder: Path, packages: Path) -> Path:
    """The interpreter of the environment that a list of packages describes.

    Args:
        folder: of all environments; this one is named after the list.
        packages: a requirements file.

    Raises:
        NotInstallable: a package cannot be had, or not be built.
    """
    place = folder / packages.stem
    wanted = hashlib.sha256(packages.read_bytes()).hexdigest()
    stamp, python = place / "made-from.sha256", place / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"Making {place} from {packages.name}: some minutes.", file=sys.stderr)
        venv.create(place, clear=True, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run(
            [*pip, "--requirement", str(packages)], stderr=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            raise NotInstallable(f"{packages.name}: {_cause(done.stderr)}")
        stamp.write_text(wanted)
    return python


def _cause(said: str) -> str:
    """The line of pip's complaint that names the cause."""
    lines = [line.strip() for line in said.splitlines() if "Error" in line or "ERROR" in line]
    return lines[-1] if lines else (said.strip().splitlines() or ["pip failed"])[-1]
