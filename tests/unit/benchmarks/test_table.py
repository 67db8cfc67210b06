"""The table of benchmarks in their README."""

from __future__ import annotations

import re
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_table_names_every_benchmark_and_no_other() -> None:
    rows = re.findall(
        r"^\| (?:`(\w+)/`)? *\| `(\w+)` \|", (BENCHMARKS / "README.md").read_text("utf-8"), re.M
    )
    named, folder = set(), ""
    for first, name in rows:
        folder = first or folder
        named.add(f"{folder}/{name}")
    programs = {
        (path.parent if path.name == "__main__.py" else path.with_suffix(""))
        .relative_to(BENCHMARKS)
        .as_posix()
        for path in BENCHMARKS.glob("*/**/*.py")
        if "python -m tests.benchmarks." in path.read_text("utf-8").split('"""')[1]
    }
    helpers = ("inputs/", "measuring/", "formats/stores/", "read/peers/", "prepare/peers/")
    assert named == {name for name in programs if not name.startswith(helpers)}
