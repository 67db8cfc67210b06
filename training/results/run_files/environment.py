"""``environment.json``: the software, machine and inputs of a run. Imports no TensorFlow."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from shardmill.infra import release
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.plugins import versions_of
from shardmill.infra.processes.process import num_cpus
from shardmill.training.config import TrainConfig, own_code

_PACKAGES = (
    "tensorflow",
    "keras",
    "torch",
    "torchvision",
    "numpy",
    "pyarrow",
    "opencv-python-headless",
    "simplejpeg",
    "isal",
    "pillow",
)


def describe_environment(config: TrainConfig, version: DatasetVersion, devices: list[str]) -> dict[str, Any]:
    """Return code, packages, machine, devices, seeds, dataset and configuration of a run, JSON-able.

    Args:
        config: the configuration, as it was after defaults.
        version: the dataset version.
        devices: the names of the devices that train.
    """
    return {
        "code": _code_version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: found for name in _PACKAGES if (found := _installed(name)) is not None}
        | versions_of(own_code(config)),
        "cpus": num_cpus(),
        "devices": devices,
        "seed": config.data.seed,
        "dataset": {
            "name": version.name,
            "version": version.version,
            **version.describe_view(),
            "source": version.manifest.source,
            "manifest_sha256": version.manifest_sha256,
        },
        # The key may lie elsewhere the next time.
        "config": config.model_dump(mode="json", exclude={"export": {"signing_key"}}),
    }


def _code_version() -> dict[str, Any]:
    """Return the release of Shardmill and, in a checkout, the commit and whether files differ from it."""
    folder = Path(__file__).resolve().parents[3]
    found: dict[str, Any] = {"shardmill": release()}
    if not (folder / ".git").exists():
        return found
    commit = _git(folder, "rev-parse", "HEAD")
    if commit:
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
        found |= {"commit": commit, "modified": bool(changed)}
    return found


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints; None if git is missing, slow or refuses."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, timeout=10, check=True, text=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
