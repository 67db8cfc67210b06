"""Build the source distribution and the wheels, twice, and compare their bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.samples.repositories_of_users import ROOT, copy_checkout


class Refused(Exception):
    """The archives are not fit for a release; the message says why."""


def build_twice(out: Path) -> list[Path]:
    """Build the archives, and build them again elsewhere; return them.

    Raises:
        Refused: the second build gave other bytes.
    """
    epoch = release_time()
    with tempfile.TemporaryDirectory(prefix="builds-") as folder:
        archives, others = (
            _build_copy(Path(folder, name), place, epoch)
            for name, place in (("first", out), ("second", Path(folder, "dist")))
        )
        for one, other in zip(archives, others, strict=True):
            if (one.name, one.read_bytes()) != (other.name, other.read_bytes()):
                kept = Path(shutil.move(other, out / f"{other.name}.again"))
                raise Refused(f"{one.name}: a second build gave other bytes; compare it with {kept.name}")
    return archives


def _build_copy(checkout: Path, out: Path, epoch: int) -> list[Path]:
    """Build from a copy in a folder of its own, with times of its own."""
    copy_checkout(checkout)
    for path in checkout.rglob("*"):
        if path.is_file():
            path.touch()
    return build(checkout, out, epoch)


def build(checkout: Path, out: Path, epoch: int) -> list[Path]:
    """Build the source distribution, and from it a wheel for this kind of machine and one for every other.

    Args:
        checkout: a folder that holds nothing that was built.
        out: a folder without archives.
        epoch: the time of every file in them (seconds since 1970).

    Returns:
        The source distribution, the wheel for every machine, and that for this one if there is a C compiler.
    """
    _python("build", "--no-isolation", "--sdist", "--outdir", out, checkout, epoch=epoch)
    (sdist,) = out.glob("*.tar.gz")
    make_plain(sdist, epoch)
    return [sdist, *build_wheels(sdist, out, epoch)]


def build_wheels(sdist: Path, out: Path, epoch: int, natives: Sequence[str] = ("none", "")) -> list[Path]:
    """Build the wheel for every machine, and that for this one if there is a C compiler; return them.

    Args:
        sdist: the source distribution.
        out: the folder for them.
        epoch: the time of every file in them (seconds since 1970).
        natives: values of ``SHARDMILL_NATIVE``: "none" does without compiled code.
    """
    for native in natives:
        _python("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir",
                out, sdist, epoch=epoch, native=native)  # fmt: skip
    return sorted(out.glob("*.whl"))


def make_plain(sdist: Path, epoch: int) -> None:
    """Write a ``.tar.gz`` again without what differs from build to build: times, owners, umask, order."""
    with tarfile.open(sdist) as tar:
        files = [(member, tar.extractfile(member)) for member in tar]
        contents = sorted((member.name, member, stream.read() if stream else b"") for member, stream in files)
    with (
        sdist.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, member, content in contents:
            plain = tarfile.TarInfo(name)
            plain.type, plain.size, plain.mtime = member.type, len(content), epoch
            plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            tar.addfile(plain, io.BytesIO(content))


def release_time() -> int:
    """``SOURCE_DATE_EPOCH``, else the time of the last commit, else of the last release (seconds)."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    command = ["git", "-C", ROOT, "log", "-1", "--format=%ct"]
    if (ROOT / ".git").exists():
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    dates = re.findall(
        r"^## [\d.]+ \((\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    return int(datetime.fromisoformat(dates[0]).replace(tzinfo=UTC).timestamp())


def check(archives: list[Path]) -> None:
    """Run the checkers of archives that the field uses.

    Raises:
        Refused: one of them objects.
    """
    for tool, *arguments in (
        ["twine", "check", "--strict", *archives],
        ["check_wheel_contents", *archives[1:]],
    ):
        done = subprocess.run(
            [sys.executable, "-m", tool, *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Refused(f"{tool}:\n{done.stdout}{done.stderr}")


def sha256(path: Path) -> str:
    """The digest of a file, as ``sha256sum`` prints it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _python(module: str, *arguments: str | Path, epoch: int, native: str = "") -> None:
    env: Mapping[str, str] = os.environ | {"SOURCE_DATE_EPOCH": str(epoch), "SHARDMILL_NATIVE": native}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], env=env, umask=0o022, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise Refused(f"{module} failed:\n{done.stdout}{done.stderr}")
