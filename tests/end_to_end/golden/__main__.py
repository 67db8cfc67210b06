"""Record the golden cases again, or compare them: ``python -m tests.end_to_end.golden``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.end_to_end.golden.cases import CASES, shared_folder
from tests.end_to_end.golden.recording import changes, path_of, record, to_json


def main() -> int:
    """Run the command. Returns 1 if a case differs from its record."""
    parser = argparse.ArgumentParser("python -m tests.end_to_end.golden", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(CASES)}; default: all")
    parser.add_argument("--write", action="store_true", help="replace the records instead of comparing")
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(CASES):
        parser.error(f"there is no case {', '.join(sorted(unknown))}")
    return 1 if [name for name in arguments.cases or CASES if _differs(name, arguments.write)] else 0


def _differs(name: str, write: bool) -> bool:
    """Run a case and print whether it differs from its record, or write the record."""
    photographs = CASES[name].photographs
    if photographs and not shared_folder(photographs).is_dir():
        print(f"{name}: NOT run: {shared_folder(photographs)} is missing")
        return False
    with tempfile.TemporaryDirectory() as work:
        found = record(name, Path(work))
    if write:
        path_of(name).write_text(to_json(found), encoding="utf-8")
        print(f"{name}: recorded")
        return False
    difference = changes(name, found)
    print(f"{name}: {difference or 'as recorded'}")
    return difference is not None


if __name__ == "__main__":
    sys.exit(main())
