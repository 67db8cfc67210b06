"""Runs a case, makes its record and compares it with the one in ``recorded/``."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from shardmill.beam_jobs import prepare
from shardmill.flows import cli
from tests.end_to_end.golden.builds import running_builds
from tests.end_to_end.golden.cases import CASES, DATASET, Case, Step, shared_folder
from tests.end_to_end.golden.sources import digest_of_files, write_folder
from tests.end_to_end.golden.versions import Document, describe

_RECORDED = Path(__file__).parent / "recorded"
_MOST_LINES = 80
_MAIN: dict[str, Callable[[Sequence[str]], int]] = {
    "shardmill.beam_jobs.prepare": prepare.main,
    "shardmill.flows.cli": cli.run,
}


def path_of(name: str) -> Path:
    """The file that holds the record of a case."""
    return _RECORDED / f"{name}.json"


def record(name: str, work: Path) -> Document:
    """Run a case in the empty folder ``work``, and return its record."""
    case = CASES[name]
    source = shared_folder(case.photographs) if case.photographs else work / "source"
    steps: Document = {}
    for step in case.steps:
        digest = {}
        if step.files is not None:
            write_folder(source, step.files())
            digest = {"source": digest_of_files(step.files())}
        _run(step, source, work / "root")
        steps[step.name] = digest | _versions(work / "root" / DATASET, case, steps)
    return {"builds": running_builds(), "steps": steps}


def _run(step: Step, source: Path, root: Path) -> None:
    """Run a command in this process, because a new process would take seconds to import its modules."""
    words = [word.replace("{source}", str(source)).replace("{root}", str(root)) for word in step.words]
    status = _MAIN[words[0]](words[1:])
    if status:
        raise AssertionError(f"{step.name} ended with status {status}")


def _versions(dataset: Path, case: Case, before: Document) -> Document:
    """Describe the versions that are new or changed since the steps ``before``, by manifest file name."""
    known = {name: version for step in before.values() for name, version in step.items()}
    found = {}
    for path in sorted((dataset / "manifests").iterdir()):
        manifest = json.loads(path.read_bytes())
        made_source = case.photographs is None
        version = describe(dataset, manifest, made_source=made_source, rows_only=case.rows_only)
        if known.get(path.name) != version:
            found[path.name] = version
    return found


def to_json(document: Document) -> str:
    """Format a record for its file, one value a line."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def changes(name: str, found: Document) -> str | None:
    """Return the lines in which the record of a case and what was found differ, or None if they are equal."""
    recorded = path_of(name).read_text(encoding="utf-8")
    lines = list(
        difflib.unified_diff(
            recorded.splitlines(), to_json(found).splitlines(), "recorded", "found", lineterm=""
        )
    )
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES:] = [f"... and {len(lines) - _MOST_LINES} lines more"]
    return "\n".join(lines) or None
