"""Command-line arguments that the comparisons over photographs share."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path

from tests.benchmarks.inputs.photo_folders import PHOTOGRAPHS, REPOSITORY

REQUIREMENTS = REPOSITORY / "tests/benchmarks/requirements"


def comparison_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the arguments that choose the photographs and their number."""
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
    """Add the arguments for the folders of environments and of files.

    Args:
        parser: to add to.
        work: help text of the argument for the folder of files.
    """
    parser.add_argument(
        "--environments",
        type=Path,
        default=REPOSITORY / ".venv-peers",
        help="folder of the peers' environments",
    )
    parser.add_argument("--work", type=Path, help=work)


def refuse_unknown(parser: argparse.ArgumentParser, names: str, known: Collection[str], kind: str) -> None:
    """End the command with an error if one of ``names``, separated by commas, is not known."""
    if unknown := set(names.split(",")) - set(known):
        parser.error(f"no such {kind}: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
