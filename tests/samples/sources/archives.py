"""Small archives, good and hostile."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.samples.images.photos import jpeg


def pictures(classes: Mapping[str, int], first: int = 0) -> dict[str, bytes]:
    """Name -> JPEG: ``cat/0.jpg`` and so on, all of them different."""
    names = [f"{name}/{number}.jpg" for name, count in classes.items() for number in range(count)]
    return {name: jpeg(first + number) for number, name in enumerate(names)}


def make_tar(path: Path, files: Mapping[str, bytes], mode: str = "w", form: int = tarfile.PAX_FORMAT) -> Path:
    """Write a tar; ``mode`` is "w:gz" and so on for a compressed one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode, format=form) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            archive.addfile(header(name, len(data)), io.BytesIO(data))
    return path


def header(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    """The header of a member."""
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, link
    return info


def make_zip(path: Path, files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    """Write a zip."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def hostile_tar(path: Path) -> Path:
    """A tar with every kind of member that a tar can have."""
    content = jpeg(7)
    with tarfile.open(path, "w") as archive:
        for name in ("cat/good.jpg", "../out.jpg", "/abs.jpg", "cat/../../up.jpg", "cat/twice.jpg"):
            archive.addfile(header(name, len(content)), io.BytesIO(content))
        other = jpeg(8)
        archive.addfile(header("cat/twice.jpg", len(other)), io.BytesIO(other))
        archive.addfile(header("cat/empty.jpg"))
        archive.addfile(header("cat", kind=tarfile.DIRTYPE))
        archive.addfile(header("cat/soft.jpg", kind=tarfile.SYMTYPE, link="/etc/passwd"))
        archive.addfile(header("cat/hard.jpg", kind=tarfile.LNKTYPE, link="cat/good.jpg"))
        archive.addfile(header("cat/disk.jpg", kind=tarfile.BLKTYPE))
        archive.addfile(header("cat/pipe.jpg", kind=tarfile.FIFOTYPE))
        archive.addfile(header("cat/" + "long" * 80 + ".jpg", len(other)), io.BytesIO(other))
        archive.addfile(header("cat/caf\udce9.jpg", len(other)), io.BytesIO(other))
        archive.addfile(header("./dog/.hidden.jpg", len(other)), io.BytesIO(other))
        archive.addfile(header("./dog/a.jpg", 9), io.BytesIO(b"no image!"))
    return path
