"""What is not installed is named, with the command that installs it; the base reads without the rest."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.extras import LIBRARIES
from tests.samples.datasets.published import coloured, publish
from tests.samples.images.photos import make_photos
from tests.samples.installations import PROJECT, closure, installation


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the base alone, beside photographs and a dataset."""
    folder = tmp_path_factory.mktemp("base")
    make_photos(folder / "photos", {"cat": 3, "dog": 3})
    publish(folder / "datasets", coloured({"train": {"cat": 5, "dog": 5}, "test": {"cat": 2, "dog": 2}}))
    return installation(folder / "environment")


def ran(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the interpreter in the folder of its environment, with nothing of this environment."""
    hidden = ("PYTHON", "VIRTUAL_ENV", "PREFECT", "SHARDMILL")
    env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    folder = python.parents[2]
    env["HOME"] = str(folder)
    return subprocess.run(
        [python, *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False
    )


ENTRIES = [
    ("all", "demo"),
    ("prepare", "prepare photos --dataset d"),
    ("prepare", "prepare photos --dataset d --dry-run"),
    ("prepare", "run photos --dataset d"),
    ("platform", "up"),
    ("platform", "platform server migrate --database postgresql+asyncpg://a:b@localhost:1/c"),
    ("tensorflow", "train sample"),
    ("torch", "train sample --framework torch"),
    ("tensorflow", "profile sample"),
]


@pytest.mark.parametrize(("extra", "command"), ENTRIES)
def test_a_command_names_the_extra_that_it_lacks(extra: str, command: str, base: Path) -> None:
    done = ran(base, "-m", "shardmill.flows.cli", *command.split())
    assert done.returncode == 4, done.stdout + done.stderr
    error, remedy = done.stderr.strip().splitlines()[-2:]
    assert error.startswith("error: ")
    assert error.endswith(" is not installed")
    assert remedy == f"remedy: pip install 'shardmill[{extra}]'"
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr


FUNCTIONS = [
    ("prepare", "prepare('photos', dataset='d')"),
    ("tensorflow", "train('sample')"),
    ("torch", "train('sample', settings={'run.framework': 'torch'})"),
    ("tensorflow", "open_dataset('sample').tf('train', batch_size=2)"),
    ("torch", "open_dataset('sample').torch('train', batch_size=2)"),
    ("jax", "open_dataset('sample').jax('train', batch_size=2)"),
    ("grain", "open_dataset('sample').grain('train', batch_size=2)"),
]


@pytest.mark.parametrize(("extra", "call"), FUNCTIONS)
def test_a_function_names_the_extra_that_it_lacks(extra: str, call: str, base: Path) -> None:
    done = ran(base, "-c", f"import shardmill; shardmill.{call}")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("shardmill.infra.errors.EnvironmentFault: "), done.stderr
    assert last.endswith(f"is not installed (pip install 'shardmill[{extra}]')")


def test_another_python_or_torch_is_named_where_tensorflow_has_no_wheels(base: Path) -> None:
    script = (
        "import shardmill, types\n"
        "from shardmill.infra import extras\n"
        "extras.sys = types.SimpleNamespace(version_info=(3, 14))\n"
        "shardmill.open_dataset('sample').tf('train', batch_size=2)\n"
    )
    last = ran(base, "-c", script).stderr.strip().splitlines()[-1]
    assert "use 3.11 to 3.13, or PyTorch: pip install 'shardmill[torch]'" in last


COMMANDS = [
    "datasets",
    "show sample",
    "diff sample sample",
    "export sample out",
    "settings image.size",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_base_reads_datasets(command: str, base: Path) -> None:
    done = ran(base, "-m", "shardmill.flows.cli", *command.split())
    assert done.returncode == 0, done.stderr


def test_the_base_reads_batches(base: Path) -> None:
    script = (
        "import json, shardmill\n"
        "dataset = shardmill.open_dataset('sample')\n"
        "batches = dataset.batches('test', batch_size=3)\n"
        "print(json.dumps([label for _, labels in batches for label in labels.tolist()]))\n"
    )
    done = ran(base, "-c", script)
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)) == [0, 0, 1, 1]


def test_prepare_alone_prepares(tmp_path: Path) -> None:
    make_photos(tmp_path / "photos", {"cat": 3, "dog": 3})
    done = ran(installation(tmp_path / "environment", "prepare"), "-m", "shardmill.flows.cli", "prepare",
               "photos", "--dataset", "d", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["num_records"] == 6


def test_each_extra_brings_the_libraries_that_it_is_named_for() -> None:
    project_extras = set(PROJECT["optional-dependencies"])
    assert set(LIBRARIES) == project_extras - {"all", "dev", "docs", "gpu"}
    brought_by = importlib.metadata.packages_distributions()
    for extra, libraries in LIBRARIES.items():
        names = {name.lower().replace("_", "-") for name in closure(extra)}
        for library in libraries:
            found = {name.lower().replace("_", "-") for name in brought_by.get(library, [])}
            assert not found or found & names, f"{library} does not come with {extra}"
            assert not found & closure(), f"{library} comes with the base"
