"""Serve reports and pictures: only files of known names, and never the target of a symbolic link."""

from __future__ import annotations

import os
import re
from pathlib import Path

from starlette.responses import Response

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import NotFoundError, ShardmillError

_LARGEST_BYTES = 256 << 20
# A manifest may come from elsewhere: only a path that Shardmill itself gives a report is followed.
_REPORT_PATH = re.compile(r"data/[0-9A-Za-z]+/report(-\d+)?\.html")
_PICTURE = re.compile(r"(confusion|reliability)-(train|validation|test)\.svg")
RUN_REPORT = "report.html"

# Reports are pages without scripts. The sandbox also takes the rights of this page's address from them.
REPORT_POLICY = (
    "sandbox allow-popups; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PICTURE_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'"


def dataset_report(version: DatasetVersion) -> Response:
    """Return the report of a version.

    Raises:
        NotFoundError: it has none, or at no place where a report may be.
    """
    path = version.manifest.report
    if path is None or _REPORT_PATH.fullmatch(path) is None:
        raise NotFoundError(f"{version.ref} has no report", f"make it: shardmill report {version.ref}")
    local = version.storage.local_path(path)
    content = version.storage.read_bytes(path) if local is None else _read(local)
    return _answer(content, "text/html; charset=utf-8", REPORT_POLICY)


def run_file(run: Path, name: str) -> Response:
    """Return the report or a picture of a run.

    Raises:
        NotFoundError: it is not a file that may be shown, or is not there.
    """
    if name == RUN_REPORT:
        return _answer(_read(run / name), "text/html; charset=utf-8", REPORT_POLICY)
    if _PICTURE.fullmatch(name):
        return _answer(_read(run / name), "image/svg+xml", PICTURE_POLICY)
    raise NotFoundError(f"{name!r} is not a file that is shown here", "see the page of the run")


def pictures_of(run: Path) -> list[str]:
    """Return the names of the pictures that a run has, those of the test split first."""
    try:
        names = [path.name for path in run.iterdir() if _PICTURE.fullmatch(path.name)]
    except OSError:
        return []
    return sorted(names, key=lambda name: ("test" not in name, name))


def _answer(content: bytes, media_type: str, policy: str) -> Response:
    return Response(content, media_type=media_type, headers={"Content-Security-Policy": policy})


def _read(path: Path) -> bytes:
    """Return a whole file that is no link.

    Raises:
        NotFoundError: there is no such file. ShardmillError: it is too large to be a report.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise NotFoundError(f"{path.name} is not there: {error.strerror}", None) from error
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(descriptor).st_size > _LARGEST_BYTES:
            raise ShardmillError(f"{path} is too large to be shown", "open it from the disk")
        try:
            return file.read()
        except IsADirectoryError as error:
            raise NotFoundError(f"{path.name} is a folder", None) from error
