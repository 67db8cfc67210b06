"""Check the names under which the processes of a command loaded modules of Shardmill."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
_OURS = tuple(f"{ROOT / name}{os.sep}" for name in ("shardmill", "flows", "beam_jobs", "training", "infra"))


def saying_modules(folder: Path) -> dict[str, str]:
    """Make a folder; return the environment with which processes write there what they loaded."""
    folder.mkdir()
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"MODULES_SEEN": str(folder), "PYTHONPATH": os.pathsep.join(paths)}


def check_one_name(folder: Path) -> list[str]:
    """Check that each process knows each file of ours once, under its dotted name.

    Returns:
        The command of each process.
    """
    commands = []
    for file in folder.glob("*.json"):
        said = json.loads(file.read_text())
        commands.append(" ".join(said["command"]))
        ours = [(name, own, path) for name, own, path in said["modules"] if path.startswith(_OURS)]
        foreign = [(name, path) for name, own, path in ours if own.partition(".")[0] != "shardmill"]
        assert not foreign, f"{commands[-1]}: not below shardmill: {foreign}"
        twice = [path for path, times in Counter(path for _, _, path in ours).items() if times > 1]
        assert not twice, f"{commands[-1]}: loaded twice: {twice}"
    return commands
