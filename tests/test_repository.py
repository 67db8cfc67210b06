"""The files that a host of repositories reads: valid by their public schemas, and true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCHEMAS = {
    ".github/workflows/ci.yml": "github-workflows",
    ".github/workflows/wheels.yml": "github-workflows",
    ".github/ISSUE_TEMPLATE/config.yml": "github-issue-config",
    ".github/ISSUE_TEMPLATE/wrong.yml": "github-issue-forms",
    ".github/ISSUE_TEMPLATE/wish.yml": "github-issue-forms",
    "CITATION.cff": "citation-file-format",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_file_of_the_host_is_valid(name: str) -> None:
    command = ["-m", "check_jsonschema", "--builtin-schema", f"vendor.{SCHEMAS[name]}", ROOT / name]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_form_is_checked() -> None:
    forms = {str(path.relative_to(ROOT)) for path in (ROOT / ".github").rglob("*.yml")}
    assert forms == {name for name in SCHEMAS if name.startswith(".github")}


def test_the_public_checks_are_those_of_ci() -> None:
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    assert re.findall(r"- run: (.*)", workflow) == [".ci/run", ".ci/run ${{ matrix.python }}"]
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_the_citation_names_the_release() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {project['version']}\n" in citation
    of_the_code = project["license"].partition(" AND ")[0]
    assert f"\nlicense: {of_the_code}\n" in citation
