"""The requirement lists of the container images are complete for their commands, and hold nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardmill.infra.dataset.catalog import Catalog
from tests.samples.sources.image_folders import write_image_folder

REPOSITORY = Path(__file__).parents[2]
_LISTS = REPOSITORY / "infra" / "deploy" / "containers"
_INSTALL_SECONDS = 1500.0

pytestmark = pytest.mark.timeout(2400)


class Environment:
    """A virtual environment with the packages of a requirement list and this checkout."""

    def __init__(self, folder: Path, name: str) -> None:
        self._python = folder / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=300)
        self.says("-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                  "--constraint", str(REPOSITORY / "constraints.txt"),
                  "--requirement", str(_LISTS / f"{name}.txt"))  # fmt: skip
        self.says("-m", "pip", "check")
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "checkout.pth").write_text(f"{REPOSITORY}\n")

    def says(self, *arguments: str) -> str:
        """Run a command with its Python; return the output."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of its Python, with nothing of this environment."""
        hidden = ("PYTHON", "VIRTUAL_ENV", "PREFECT", "SHARDMILL")
        env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        command = [str(self._python), *arguments]
        return subprocess.run(
            command,
            cwd=self._python.parents[2],
            env=env,
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS,
            check=False,
        )

    def lacks(self, *modules: str) -> bool:
        """Tell whether none of the modules can be imported."""
        finds = f"import importlib.util as u, sys; sys.exit(any(u.find_spec(m) for m in {list(modules)}))"
        return self.run("-c", finds).returncode == 0


def test_prepare_works_without_tensorflow(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv", "prepare")
    assert environment.lacks("tensorflow", "keras", "torch", "tensorboard")
    source = write_image_folder(tmp_path / "photos", per_class=8)
    command = [
        "-m",
        "shardmill.beam_jobs.prepare",
        str(source),
        "--dataset",
        "photos",
        "--root",
        str(tmp_path / "datasets"),
    ]
    environment.says(*command)
    assert Catalog(tmp_path / "datasets").open("photos@1").manifest.accounting.num_records == 16
    environment.says("-c", "import shardmill.flows.prepare, shardmill.flows.maintain")
    assert "prepare" in environment.says("-m", "shardmill.flows.cli", "--help")


def test_train_works_without_beam(tmp_path: Path) -> None:
    source, root = write_image_folder(tmp_path / "photos", per_class=8), tmp_path / "datasets"
    prepare = ["-m", "shardmill.beam_jobs.prepare", str(source), "--dataset", "photos", "--root", str(root)]
    subprocess.run([sys.executable, *prepare], check=True, cwd=REPOSITORY, capture_output=True, timeout=300)
    environment = Environment(tmp_path / "venv", "train")
    assert environment.lacks("apache_beam", "torch")
    environment.says(
        "-m", "shardmill.training.train", "photos", "--root", str(root), "--runs", str(tmp_path / "runs"),
        "--set", "data.image_size=32", "--set", "data.global_batch_size=8", "--set", "run.epochs=1",
    )  # fmt: skip
    assert list((tmp_path / "runs").glob("*/result.json"))
    environment.says("-c", "import shardmill.flows.train, shardmill.flows.evaluate, shardmill.flows.promote")


def test_workers_have_prefects_workers_and_neither_library(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv", "worker")
    assert environment.lacks("tensorflow", "apache_beam", "torch")
    types = environment.says("-c", "import prefect_docker.worker, prefect_kubernetes.worker; print('both')")
    assert types == "both\n"


def test_servers_have_redis_and_neither_library(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv", "server")
    assert environment.lacks("tensorflow", "apache_beam", "torch")
    refused = environment.run("-m", "shardmill.flows.cli", "platform", "server", "api", "--database", "postgresql+asyncpg://127.0.0.1:1/p",
                              "--redis", "redis://127.0.0.1:1/0")  # fmt: skip
    assert refused.returncode == 4
    assert "--database postgresql+asyncpg://127.0.0.1:1/p cannot be used" in refused.stderr
    environment.says("-c", "import prefect_redis.lease_storage, shardmill.flows.server.production")
