"""Prepares of small sources, by the command and in process, and one source with every kind of input."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs import prepare as prepare_job
from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.job import prepare_version
from shardmill.beam_jobs.request import JobRequest
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.processes.process import run_main
from tests.samples.images.photos import jpeg, make_photos, png, rotated_jpeg, write
from tests.samples.preparing.command import prepare_command


def prepare(source: Path | str, root: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, whatever that is."""
    argv = prepare_command(source, root, *more)
    return subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)


def prepare_here(
    source: Path, root: Path | str, *more: str, dataset: str = "d"
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end in this process, which is quicker than to start one."""
    argv = prepare_command(source, root, *more, dataset=dataset)
    words = argv[argv.index("shardmill.beam_jobs.prepare") + 1 :]
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("ARROW_DEFAULT_MEMORY_POOL", "system")  # the command sets it
        status = run_main(lambda: prepare_job.main(words))
    return subprocess.CompletedProcess(argv, status, out.getvalue(), err.getvalue())


def prepared(source: Path, root: Path, *more: str) -> dict[str, Any]:
    """The result of the command, which ends well."""
    return _result(prepare(source, root, "--json", *more))


def prepared_here(source: Path, root: Path | str, *more: str, dataset: str = "d") -> dict[str, Any]:
    """The result of the command in this process, which ends well."""
    return _result(prepare_here(source, root, "--json", *more, dataset=dataset))


def _result(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
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
