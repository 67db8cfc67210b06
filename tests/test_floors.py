"""Imports keep to the floors, light commands load no heavy library, and generated pages are current."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = ("apache_beam", "tensorflow", "keras", "prefect", "torch", "cv2", "pyarrow", "numpy", "jinja2")

# module -> heavy packages that importing it may bring along
LIGHT = {
    "shardmill.flows.cli": (),
    "shardmill.beam_jobs.config": ("pyarrow", "numpy"),
    "shardmill.training.config": ("pyarrow", "numpy"),
    "shardmill.beam_jobs.prepare": ("pyarrow", "numpy", "cv2"),
    "shardmill.infra.dataset.catalog": ("pyarrow", "numpy"),
}


def test_floors_hold() -> None:
    """The import-linter contracts of pyproject.toml; `make lint` runs the same."""
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert f"{len(contracts)} kept, 0 broken" in done.stdout


@pytest.mark.parametrize("module", LIGHT)
def test_light_modules_load_nothing_heavy(module: str) -> None:
    """Imports in a fresh interpreter, so that nothing another test imported counts."""
    code = f"import sys, {module}; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert set(done.stdout.split()) <= set(LIGHT[module])


def test_constraints_are_exact_and_free_of_addresses() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(line.count("==") == 1 and not set(line) & set("@/ ;<>") for line in pins)
    pinned = {name.lower(): version for name, version in (pin.split("==") for pin in pins)}
    assert tuple(map(int, pinned["fastapi"].split(".")[:2])) < (0, 151)
    assert tuple(map(int, pinned["sqlalchemy"].split(".")[:2])) < (2, 1)


def script(name: str) -> ModuleType:
    """A script of docs/, imported."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


def test_configuration_page_is_current() -> None:
    reference = script("configuration_reference")
    written = reference.PAGE.read_text(encoding="utf-8")
    assert written == reference.render(), "run: python docs/configuration_reference.py"


@pytest.mark.parametrize(
    ("page", "line"), [("REASONS", "- `decoder_hung`: "), ("COLUMNS", "| `look` binary |")]
)
def test_lists_from_the_code_are_current(page: str, line: str) -> None:
    reference = script("reference_tables")
    written = getattr(reference, page).read_text(encoding="utf-8")
    assert written == reference.render(getattr(reference, page)), "run: python docs/reference_tables.py"
    assert line in written


def test_architecture_picture_is_current() -> None:
    picture = script("architecture_picture")
    written = picture.PICTURE.read_text(encoding="utf-8")
    assert written == picture.render(), "run: python docs/architecture_picture.py"


PATH_IN_TEXT = re.compile(r"`((?:flows|beam_jobs|training|infra|tests|docs)/[\w./]*)`")


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_paths_named_for_contributors_exist(page: str) -> None:
    named = PATH_IN_TEXT.findall((ROOT / page).read_text(encoding="utf-8"))
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []
