"""Runs the blocks of one page of the documentation, in a folder that looks like the reader's.

    python tests/documentation/run_page.py docs/read-from-python.md

All Python blocks of a page share their names, as in a reader's session. Trainings are made small: what
``_SMALL`` says is added to each command that trains, behind the settings of the page. The runs and the record
that a page names as examples are replaced by real ones.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from shardmill.infra.dataset.catalog import Catalog
from tests.documentation.blocks import Block, blocks

# Values that a laptop trains on in seconds; the page's own values are checked without running them.
_SMALL = {
    "run.epochs": "1",
    "data.image_size": "32",
    "data.global_batch_size": "16",
    "run.checkpoint_every_seconds": "600",
}
_RECORD = "0f3c5a7be1d24c68"
_RUNS = ("photos-v1-3f2a9c", "photos-v1-90bc11")
# The run of the page's own training, which may be in the same block.
_OWN_RUN, _NEWEST_RUN = "street-v1-0123456789", "$(ls -dt runs/street-v*-* | head -n 1)"


def run_page(page: Path) -> None:
    """Run the blocks of a page, from top to bottom, in the current folder; ends at the first that fails."""
    sys.path.insert(0, "")  # as in an interpreter that was started here
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        if block.run_first:
            _shell(_ready(block.run_first), f"before {block.place}")
        if block.not_run:
            print(f"-- {block.place} is not run: {block.not_run}", flush=True)
        elif block.file:
            Path(block.file).parent.mkdir(parents=True, exist_ok=True)
            Path(block.file).write_text(block.text, encoding="utf-8")
        elif block.kind == "python":
            begun = time.monotonic()
            exec(compile(_with_real_names(block.text), block.place, "exec"), names)
            print(f"-- {block.place}, python: {time.monotonic() - begun:.1f} s", flush=True)
        elif block.kind == "shell":
            _shell("\n".join(_ready(command) for command in _commands(block)), block.place)


def _commands(block: Block) -> list[str]:
    """The commands of a block; the environment is entered already, and a browser is not opened."""
    commands = [command for command in block.commands() if not command.startswith("source .venv")]
    return [command.replace(" --open", "") for command in commands]


def _shell(script: str, place: str) -> None:
    print(f"-- {place}:\n{script}", flush=True)
    begun = time.monotonic()
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], check=False)
    print(f"-- {place}, shell: {time.monotonic() - begun:.1f} s, status {done.returncode}", flush=True)
    if done.returncode:
        raise SystemExit(f"{place}: status {done.returncode}")


def _ready(command: str) -> str:
    """A command as the test runs it: with real names, and small where it trains."""
    return re.sub(r"[^;&]+", lambda part: _small(part[0]), _with_real_names(command))


def _small(command: str) -> str:
    match = re.search(r"\b(shardmill|python -m training\.)\s?(\S+)", command)
    trains = match and (
        match[2] in ("train", "run", "label-errors") or ("profile" in command and "--model" in command)
    )
    if not trains:
        return command
    prefix = "train." if match[2] == "run" else ""
    extra = " ".join(f"--set {prefix}{key}={value}" for key, value in _SMALL.items())
    if match[2] == "label-errors":
        extra += " --folds 2"
        command = re.sub(r" --folds \S+", "", command)
    for key in _SMALL:  # a setting is given once
        command = re.sub(rf" --set {re.escape(prefix + key)}=\S+", "", command)
    bare, comment, rest = command.partition(" #")
    return f"{bare.rstrip()} {extra} {comment}{rest}"


def _with_real_names(text: str) -> str:
    """Replace the record and the runs that the pages name by real ones."""
    if _RECORD in text:
        version = Catalog("datasets").open("photos")
        text = text.replace(_RECORD, version.index(version.shards("train")[0])["id"][0].as_py())
    if any(run in text for run in _RUNS):
        real = sorted((path for path in Path("runs").glob("photos-*/result.json")), key=os.path.getmtime)
        for run, result in zip(_RUNS, real, strict=False):
            text = text.replace(run, result.parent.name)
    return text.replace(_OWN_RUN, _NEWEST_RUN)


if __name__ == "__main__":
    run_page(Path(sys.argv[1]))
