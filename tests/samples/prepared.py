"""Prepares of small sources, by the command and in process, and one source with every kind of input."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from beam_jobs.config import PrepareConfig
from beam_jobs.job import prepare_version
from beam_jobs.request import JobRequest
from infra.dataset.version import DatasetVersion
from tests.samples.command import prepare_command
from tests.samples.photos import jpeg, make_photos, png, rotated_jpeg, write


def prepare(source: Path, root: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, whatever that is."""
    argv = prepare_command(source, root, *more)
    return subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)


def prepared(source: Path, root: Path, *more: str) -> dict[str, Any]:
    """The result of the command, which ends well."""
    done = prepare(source, root, "--json", *more)
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def run(source: Path, root: Path, /, **config: Any) -> dict[str, Any]:
    """The result of the job in this process."""
    config = {"runner": {"processes": 2, "block_images": 8}, **config}
    return prepare_version(
        JobRequest(
            source=str(source), dataset="d", root=str(root), config=PrepareConfig.model_validate(config)
        )
    )


def rows(version: DatasetVersion) -> dict[str, dict[str, Any]]:
    """The outcome of each input, by its URI."""
    return {row["uri"]: row for row in version.inputs().to_pylist()}


def stored_bytes(root: Path) -> dict[str, bytes]:
    """Relative path -> content of all shards, indexes and inputs."""
    data = root / "d" / "data"
    return {
        str(path.relative_to(data)): path.read_bytes()
        for path in sorted(data.rglob("*"))
        if path.is_file() and path.name != "report.html"
    }


def make_messy(root: Path) -> Path:
    """A folder with every kind of input that there is."""
    source = make_photos(root, {"cat": 12, "dog": 8})
    return write(
        source,
        {
            "cat/rotated.jpg": rotated_jpeg(900, orientation=6),
            "cat/deeper/still/cat.png": png(901),
            "cat/same.jpg": jpeg(902),
            "dog/same too.jpg": jpeg(902),
            "dog/copy.png": png(901),
            "cat/zz copy.png": png(901),
            "cat/broken.jpg": jpeg(903)[:-60],
            "cat/empty.png": b"",
            "dog/no image.jpg": b"GIF? no, nothing of the kind",
            "dog/notes.txt": b"ignored",
            "dog/.DS_Store": b"ignored",
            ".git/config": b"ignored",
            "README.md": b"ignored",
            "stray.jpg": jpeg(904),
        },
    )
