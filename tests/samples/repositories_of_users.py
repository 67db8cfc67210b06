"""Repositories of users with names of ours and of libraries, and Shardmill installed from a wheel.

A module of such a repository that is imported although nobody named it raises an error.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.samples.sources.image_folders import write_image_folder

ROOT = Path(__file__).parents[2]
FOLDERS = ("flows", "beam_jobs", "training", "infra")
ABOUT = {
    "CHANGELOG.md",
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "constraints.txt",
    "pyproject.toml",
    "setup.py",
}
NAMES = (
    "training", "flows", "infra", "beam_jobs", "tests", "data", "models", "utils", "datasets", "config",
)  # fmt: skip
# Of Python and of libraries that our processes import.
HIDING = ("random", "socket", "numpy", "shardmill")

Kind = Literal["package", "module", "images"]
KINDS: tuple[Kind, ...] = ("package", "module", "images")

_RAISES = "raise RuntimeError('a module of the user was imported that nobody named')\n"
# The user's own code imports a module of his beside it.
_SIDE = "SIZE = 32\n"
_KERAS = """\
import keras
from shop.sizes import SIZE

DEFAULT_IMAGE_SIZE = SIZE


def make(spec):
    image = keras.Input(spec.image_shape)
    x = keras.layers.GlobalAveragePooling2D()(image / 255.0)
    return keras.Model(image, keras.layers.Dense(spec.num_classes)(x))


class Said(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        print("the callback of the user")
"""
_TORCH = """\
from torch import nn
from shop.sizes import SIZE

DEFAULT_IMAGE_SIZE = SIZE


def make(spec):
    return nn.Sequential(nn.AvgPool2d(spec.image_size), nn.Flatten(), nn.Linear(3, spec.num_classes))
"""
_KIND = "from shardmill.beam_jobs.sources.kinds.image_folder import list_inputs\n"


@dataclass(frozen=True)
class Installed:
    """Shardmill from a wheel, in an environment that has the libraries of another one.

    Attributes:
        python: its interpreter.
    """

    python: Path

    def run(
        self, folder: Path, *arguments: str | Path, env: Mapping[str, str], timeout: float = 400
    ) -> subprocess.CompletedProcess[str]:
        """Run `shardmill` to its end in a folder; it has to succeed."""
        command = [self.python.parent / "shardmill", *arguments]
        done = subprocess.run(
            command, cwd=folder, env=dict(env), capture_output=True, text=True, timeout=timeout, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def environment(self, home: Path) -> dict[str, str]:
        """The variables of a user who has set nothing."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "SHARDMILL_HOME": str(home / "shardmill"), "HOME": str(home)}
        return {**kept, **quiet, "PREFECT_HOME": str(home / "prefect")}


def copy_checkout(folder: Path) -> Path:
    """Copy the files from which packages are built, without anything that was built; return the folder."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    for name in (*FOLDERS, "shardmill"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
    for name in ABOUT:
        shutil.copy2(ROOT / name, folder)
    return folder


def install_wheel(folder: Path) -> Installed:
    """Build a wheel of this checkout, and install it where the checkout itself is not on the path."""
    copy = copy_checkout(folder / "checkout")
    _checked(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
             "--no-index", "--wheel-dir", folder, copy)  # fmt: skip
    _checked(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    python = folder / "venv/bin/python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    libraries = [place for place in sys.path if Path(place).name == "site-packages"]
    (folder / "venv/lib" / version / "site-packages/libraries.pth").write_text("\n".join(libraries) + "\n")
    (wheel,) = folder.glob("*.whl")
    _checked(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index",
             "--ignore-installed", "--no-compile", wheel)  # fmt: skip
    shutil.rmtree(copy)
    return Installed(python)


def _checked(*command: str | Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=sysconfig.get_path("scripts"))
    assert done.returncode == 0, done.stdout + done.stderr


def make_repository(folder: Path, names: Mapping[str, Kind]) -> Path:
    """Fill a folder with photographs, own code, and a file or folder for each name."""
    folder.mkdir(parents=True)
    (folder / "shop").mkdir()
    for name, text in {"sizes": _SIDE, "keras_net": _KERAS, "torch_net": _TORCH, "kind": _KIND}.items():
        (folder / "shop" / f"{name}.py").write_text(text)
    write_image_folder(folder / "photos", per_class=12)
    for name, kind in names.items():
        if kind == "module":
            (folder / f"{name}.py").write_text(_RAISES)
            continue
        (folder / name / "circle").mkdir(parents=True)
        if kind == "package":
            (folder / name / "__init__.py").write_text(_RAISES)
        else:
            shutil.copy(folder / "photos/circle/000.jpg", folder / name / "circle")
    return folder


def all_names(first: int) -> dict[str, Kind]:
    """Return a file or folder for each name, of the three kinds in turn from ``KINDS[first]`` on."""
    kinds = {name: KINDS[(first + number) % 3] for number, name in enumerate((*NAMES, *HIDING))}
    return {**kinds, "shardmill": "images"}


def one_name(number: int) -> dict[str, Kind]:
    """One of the names."""
    return {NAMES[number]: KINDS[number % 3]}


def result_of(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    """The result that a command with ``--json`` printed."""
    found: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
