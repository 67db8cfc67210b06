"""Whether a checkout is a release, and what to do with what was built of it."""

from __future__ import annotations

import re
import subprocess
from datetime import date
from pathlib import Path

from tests.distribution.building import Refused
from tests.samples.installations import PROJECT
from tests.samples.repositories_of_users import ROOT

VERSION = PROJECT["version"]


def check_release(root: Path = ROOT) -> None:
    """Check that a version is committed, described and new.

    Raises:
        Refused: it is not; names the file and what to write there.
    """
    changelog = (root / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.*)$", changelog, re.MULTILINE)
    if headings[0] != "Unreleased":
        raise Refused("CHANGELOG.md: its first heading has to be '## Unreleased'")
    if re.match(r".*\n## Unreleased\n+## ", changelog, re.DOTALL) is None:
        raise Refused(f"CHANGELOG.md: move the entries of 'Unreleased' below '## VERSION ({date.today()})'")
    if not re.fullmatch(rf"{re.escape(VERSION)} \(\d{{4}}-\d\d-\d\d\)", headings[1]):
        raise Refused(f"CHANGELOG.md: '{headings[1]}' should be '{VERSION} ({date.today()})'")
    if f"\nversion: {VERSION}\n" not in (root / "CITATION.cff").read_text():
        raise Refused(f"CITATION.cff: its version should be {VERSION}")
    if changed := _git(root, "status", "--porcelain"):
        raise Refused(f"commit or remove these changes first:\n{changed}")
    if _git(root, "tag", "--list", f"v{VERSION}"):
        raise Refused(f"the tag v{VERSION} exists: raise the version in pyproject.toml")


def next_steps(archives: list[Path]) -> str:
    """What a person does next. Nothing was uploaded."""
    universal = " ".join(f"dist/{path.name}" for path in archives if "linux" not in path.name)
    return f"""
Nothing was uploaded. Next:

  git tag -a v{VERSION} -m "Release {VERSION}"
  git push origin v{VERSION}          # .github/workflows/wheels.yml then builds wheels for Linux and macOS

Download these wheels into dist/ in place of the one for this machine, which no index takes, and upload:

  twine upload {universal} dist/*manylinux*.whl dist/*macosx*.whl"""


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"a release is made in a clone with git: {done.stderr.strip()}")
    return done.stdout.strip()
