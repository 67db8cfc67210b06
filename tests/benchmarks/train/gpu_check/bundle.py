"""The folder that the GPU check takes along: a published dataset, and wheels that the machine lacks.

::

    <bundle>/datasets/photographs-none/   a published dataset, at most 20 MB
    <bundle>/wheels/*.whl                 for CPython 3.12 on Linux x86-64, at most 30 MB
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path

REPOSITORY = Path(__file__).parents[4]
DATASET = "photographs-none"
MOST_DATASET_BYTES, MOST_WHEEL_BYTES = 20_000_000, 30_000_000
PYTHON = "3.12"
_PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (34, 31, 28, 27, 26, 24, 17, 12, 5)]
# Packages that the machine has, with what they need.
_PRESENT = {
    *("torch", "torchvision", "jax", "numpy", "opencv-python-headless", "pyarrow", "pillow", "psutil"),
    *("rich", "typer"),
}
# The trainer takes the message types of this package, which need nothing but protobuf.
_ALONE = ("tensorboard",)
_INSTALL_SECONDS = 60


def make(bundle: Path, photographs: Path | None, num_images: int) -> None:
    """Fill a folder with a dataset of photographs and with wheels, and print their sizes.

    Args:
        bundle: the folder.
        photographs: a folder of them; None makes them up.
        num_images: how many.
    """
    from tests.benchmarks.inputs.photo_folders import make_photographs
    from tests.benchmarks.inputs.stored_photographs import prepare

    if bundle.is_dir() and any(bundle.iterdir()):
        raise SystemExit(f"{bundle} is not empty: name another folder, or empty it")
    with tempfile.TemporaryDirectory() as scratch:
        source = make_photographs(Path(scratch) / "source", num_images, photographs)
        prepare(source, bundle / "datasets", "none")
    packages = missing_packages()
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    pip += ["--python-version", PYTHON, "--implementation", "cp", "--dest", str(bundle / "wheels")]
    pip += [part for platform in _PLATFORMS for part in ("--platform", platform)]
    subprocess.run([*pip, *(f"{name}=={version}" for name, version in packages.items())], check=True)
    sizes = {path.name: path.stat().st_size for path in sorted((bundle / "wheels").glob("*.whl"))}
    for name, size in sizes.items():
        print(f"{size / 1e6:6.2f} MB  {name}")
    _check_size("wheels", sum(sizes.values()), MOST_WHEEL_BYTES)
    files = (path for path in (bundle / "datasets").rglob("*") if path.is_file())
    _check_size("dataset", sum(path.stat().st_size for path in files), MOST_DATASET_BYTES)


def _check_size(what: str, size: int, most: int) -> None:
    print(f"{what}: {size / 1e6:.1f} MB, at most {most / 1e6:.0f}")
    if size > most:
        raise SystemExit(f"the {what} of the bundle are too large: take fewer photographs or packages")


def missing_packages() -> dict[str, str]:
    """Return the packages that the reader and the trainer need and the machine lacks, with versions of here.

    Needs are those of ``pyproject.toml``, then those of the packages that are installed here.
    """
    from packaging.requirements import Requirement

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = {name: metadata.version(name) for name in _ALONE}
    needed = list(project["dependencies"])
    while needed:
        requirement = Requirement(needed.pop())
        name = _plain(requirement.name)
        applies = requirement.marker is None or requirement.marker.evaluate(
            {"python_version": PYTHON, "python_full_version": f"{PYTHON}.0", "extra": ""}
        )
        if applies and name not in _PRESENT and name not in found:
            found[name] = metadata.version(name)
            needed += metadata.requires(name) or []
    return found


def install(bundle: Path, site: Path) -> list[str]:
    """Unpack into a folder the wheels that this Python lacks or has older. Its environment stays as it is.

    Args:
        bundle: the bundle.
        site: the folder, to be put first on the import path.

    Returns:
        The names of the packages.
    """
    here = {_plain(found.name): found.version for found in metadata.distributions()}
    lacking = {}
    for path in sorted((bundle / "wheels").glob("*.whl")):
        name, version, *_ = path.name.split("-")
        if _numbers(here.get(_plain(name), "0")) < _numbers(version):
            lacking[_plain(name)] = str(path)
    if lacking:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
        pip += ["--disable-pip-version-check", "--target", str(site), *lacking.values()]
        subprocess.run(pip, check=True, timeout=_INSTALL_SECONDS)
    return sorted(lacking)


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdecimal()]
