"""Keep the ratios of the benchmarks for each release and machine, and show today's beside the last ones.

    python -m tests.benchmarks.measuring.history [--keep]     # at the end of make bench; KEEP=1 keeps them

A benchmark notes its ratios to a limit or a peer of the same run (``note``); more is better. They are in the
file that $SHARDMILL_RATIOS names until they are kept: ``history.jsonl`` has a line a release and machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from shardmill.infra.processes.process import num_cpus

VARIABLE = "SHARDMILL_RATIOS"
HISTORY = Path(__file__).parents[1] / "history.jsonl"

Line = dict[str, Any]  # "release", "machine", "day", "versions": {library: version}, "ratios": {name: ratio}

_LIBRARIES = (
    "apache-beam", "numpy", "opencv-python-headless", "pillow", "pyarrow", "simplejpeg", "tensorflow", "torch"
)  # fmt: skip
_MOVED = 0.05  # a smaller change is noise


def note(name: str, ratio: float) -> None:
    """Note a ratio of this run, if somebody collects them; a later one of the same name replaces it."""
    if path := os.environ.get(VARIABLE):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with Path(path).open("a", encoding="utf-8") as notes:
            print(json.dumps([name, round(ratio, 3)]), file=notes)


def today(notes: Path) -> Line:
    """Return the line of this release and machine.

    Raises:
        FileNotFoundError: no benchmark noted anything.
    """
    versions = {"python": platform.python_version()}
    for library in _LIBRARIES:
        try:
            versions[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return {
        "release": metadata.version("shardmill"),
        "machine": f"{_processor()}, {num_cpus()} cores",
        "day": datetime.now(UTC).date().isoformat(),
        "versions": versions,
        "ratios": dict(json.loads(text) for text in notes.read_text(encoding="utf-8").splitlines()),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def read(history: Path) -> list[Line]:
    """Return the lines that are kept, the oldest first; none if there is no such file."""
    return [json.loads(text) for text in history.read_text().splitlines()] if history.exists() else []


def keep(history: Path, new: Line) -> None:
    """Add the line; one of the same release and machine is replaced, but for ratios that are not new."""
    lines = read(history)
    same = [line for line in lines if _key(line) == _key(new)]
    merged = new | {"ratios": {name: r for line in (*same, new) for name, r in line["ratios"].items()}}
    lines = [line for line in lines if _key(line) != _key(new)]
    history.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in (*lines, merged)))


def _key(line: Line) -> tuple[str, str]:
    return line["release"], line["machine"]


def compared(new: Line, lines: list[Line]) -> list[str]:
    """Return a line of text for each ratio, beside the last one of the same machine, and what moved."""
    before = [line for line in lines if line["machine"] == new["machine"]]
    texts = [f"ratios of {new['release']} ({new['day']}) on {new['machine']}; more is better"]
    for name, ratio in new["ratios"].items():
        last = next((line for line in reversed(before) if name in line["ratios"]), None)
        if last is None:
            texts.append(f"{name:<60}{ratio:>8.2f}   the first on this machine")
            continue
        was = last["ratios"][name]
        change = ratio / was - 1 if was else 0.0
        moved = f"   {change:+.0%}" if abs(change) >= _MOVED else ""
        texts.append(f"{name:<60}{ratio:>8.2f}{was:>8.2f} in {last['release']} ({last['day']}){moved}")
    libraries = before[-1]["versions"] if before else new["versions"]
    others = (
        f"{library} {libraries.get(library, 'none')} -> {new['versions'].get(library, 'none')}"
        for library in sorted({*libraries, *new["versions"]})
        if libraries.get(library) != new["versions"].get(library)
    )
    return [*texts, *(f"another version since then: {text}" for text in others)]


def main() -> int:
    """Show the ratios that were noted, and keep them if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keep", action="store_true", help=f"write them to {HISTORY.name}")
    told = parser.parse_args()
    notes = Path(os.environ.get(VARIABLE, ""))
    if not notes.is_file():
        parser.error(f"${VARIABLE} names no file with ratios: run make bench")
    new = today(notes)
    print("\n".join(compared(new, read(HISTORY))))
    if told.keep:
        keep(HISTORY, new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
