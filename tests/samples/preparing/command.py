"""The command line of prepare, as tests start it."""

from __future__ import annotations

import sys
from pathlib import Path


def prepare_command(source: Path | str, root: Path | str, *more: str, dataset: str = "d") -> list[str]:
    """argv of ``prepare`` in a process of its own, with more words behind."""
    words = [str(source), "--dataset", dataset, "--root", str(root), *more]
    return [sys.executable, "-m", "shardmill.beam_jobs.prepare", *words]
