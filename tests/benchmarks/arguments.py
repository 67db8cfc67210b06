"""The arguments that the comparisons over photographs have in common."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path

from tests.benchmarks.photo_folders import PHOTOGRAPHS, REPOSITORY


def comparison_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with what photographs to take, and how many."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=PHOTOGRAPHS if PHOTOGRAPHS.is_dir() else None,
        help="photographs to take (default: the clothing data, else made up)",
    )
    parser.add_argument("--images", type=int, default=8000)
    return parser


def add_folders(
    parser: argparse.ArgumentParser, work: str = "folder for all files, kept (default: a temporary one)"
) -> None:
    """Where environments and files are; ``work``: the help of the latter."""
    parser.add_argument(
        "--environments",
        type=Path,
        default=REPOSITORY / ".venv-peers",
        help="folder of the peers' environments",
    )
    parser.add_argument("--work", type=Path, help=work)


def refuse_unknown(parser: argparse.ArgumentParser, names: str, known: Collection[str], kind: str) -> None:
    """End with an error where ``names``, with commas, has one that there is not."""
    if unknown := set(names.split(",")) - set(known):
        parser.error(f"no such {kind}: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
