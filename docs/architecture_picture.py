"""Draw ``docs/images/architecture.svg`` from the code: ``python docs/architecture_picture.py``.

Each folder of the four packages is a box with its name, the first line of its docstring, and the folders of
its package that it imports. The boxes of a main path stand in the order of the data, with arrows that name
what is handed on. A test compares the file with the output of this script.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "architecture.svg"

# Package -> its main path: folder, and what it hands to the next one.
PATHS: dict[str, list[tuple[str, str]]] = {
    "flows": [],
    "beam_jobs": [
        ("sources", "references: one row per file"),
        ("encode", "stored images and facts, in spool blocks"),
        ("plan", "planned shards: one row per record"),
        ("assemble", "TFRecord shards and indexes"),
        ("publish", "manifest: the version is visible"),
    ],
    "training": [
        ("order", "which record at which step"),
        ("reading", "batches of pixels and labels"),
        ("tensorflow", "tf.data pipelines, steps of Keras models"),
        ("run", "weights, metrics, checkpoints"),
    ],
    "infra": [],
}
TITLES = {
    "flows": "flows/ — what runs when, and what people see (Prefect)",
    "beam_jobs": "beam_jobs/ — raw images to shards (Apache Beam)",
    "training": "training/ — shards to a model (TensorFlow)",
    "infra": "infra/ — the ground: no Beam, TensorFlow or Prefect",
}

WIDTH = 1200
MARGIN, GAP, ARROW_HEIGHT = 16, 12, 26
BOX_HEIGHT, TITLE_HEIGHT = 74, 30
HALF = (WIDTH - 3 * MARGIN) // 2

STYLE = """\
text { font-family: system-ui, sans-serif; fill: #1f2430; }
.title { font-size: 16px; font-weight: 600; }
.name { font-size: 14px; font-weight: 600; }
.says { font-size: 11.5px; }
.uses { font-size: 10.5px; fill: #5b6474; }
.handed { font-size: 11.5px; font-style: italic; fill: #23527c; }
.room { fill: #f6f7f9; stroke: #c3c9d4; }
.box { fill: #ffffff; stroke: #8a93a5; }
.main { stroke: #23527c; stroke-width: 1.6; }
.arrow { stroke: #23527c; stroke-width: 1.6; marker-end: url(#tip); }
"""


@dataclass(frozen=True)
class Folder:
    """A folder of a package.

    Attributes:
        name: without its package.
        says: the first line of its docstring.
        uses: other folders of the package that its modules import.
    """

    name: str
    says: str
    uses: tuple[str, ...]


def folders_of(package: str) -> dict[str, Folder]:
    """The folders of a package by name, read from the code."""
    found = {}
    for init in sorted((ROOT / package).glob("*/__init__.py")):
        names = {
            imported.split(".")[2]
            for module in init.parent.rglob("*.py")
            for imported in _imports(module)
            if imported.startswith(f"shardmill.{package}.")
        }
        docstring = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
        name = init.parent.name
        found[name] = Folder(name, docstring.partition("\n")[0], tuple(sorted(names)))
    return {
        name: Folder(name, one.says, tuple(use for use in one.uses if use in found and use != name))
        for name, one in found.items()
    }


def _imports(module: Path) -> set[str]:
    """Names of the modules that a file imports, at its top or within functions."""
    names = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def render() -> str:
    """The picture as SVG.

    Raises:
        ValueError: a main path names a folder that does not exist.
    """
    parts: list[str] = []
    y = MARGIN
    y = _row_room(parts, "flows", MARGIN, y, WIDTH - 2 * MARGIN) + GAP
    ends = [
        _stage_room(parts, package, MARGIN + column * (HALF + MARGIN), y, HALF)
        for column, package in enumerate(("beam_jobs", "training"))
    ]
    y = _row_room(parts, "infra", MARGIN, max(ends) + GAP, WIDTH - 2 * MARGIN)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + MARGIN}" role="img" '
        'aria-label="The folders of Shardmill and the way of the data through them">\n'
        f"<style>\n{STYLE}</style>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#23527c"/></marker></defs>\n'
        '<rect width="100%" height="100%" fill="#ffffff"/>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"


def _row_room(parts: list[str], package: str, x: int, y: int, width: int) -> int:
    """Draw a package whose folders stand side by side; return its lower edge."""
    boxes = list(folders_of(package).values())
    columns = min(len(boxes), 4)
    box_width = (width - GAP * (columns + 1)) // columns
    rows = -(-len(boxes) // columns)
    height = TITLE_HEIGHT + rows * (BOX_HEIGHT + GAP)
    _room(parts, package, x, y, width, height)
    for number, folder in enumerate(boxes):
        left = x + GAP + (number % columns) * (box_width + GAP)
        top = y + TITLE_HEIGHT + (number // columns) * (BOX_HEIGHT + GAP)
        _box(parts, folder, left, top, box_width)
    return y + height


def _stage_room(parts: list[str], package: str, x: int, y: int, width: int) -> int:
    """Draw a package, its main path on the left and other folders on the right; return its lower edge."""
    folders = folders_of(package)
    path = PATHS[package]
    if missing := [name for name, _ in path if name not in folders]:
        raise ValueError(f"{package} has no folders {missing}: mend PATHS in {Path(__file__).name}")
    others = [folder for name, folder in folders.items() if name not in dict(path)]
    box_width = (width - 3 * GAP) // 2
    step = BOX_HEIGHT + ARROW_HEIGHT
    room = max(len(path) * step, len(others) * (BOX_HEIGHT + GAP))
    _room(parts, package, x, y, width, TITLE_HEIGHT + room)
    for number, (name, handed) in enumerate(path):
        top = y + TITLE_HEIGHT + number * step
        _box(parts, folders[name], x + GAP, top, box_width, main=True)
        middle, bottom = x + GAP + 24, top + BOX_HEIGHT
        parts.append(f'<path class="arrow" d="M{middle} {bottom} V{bottom + ARROW_HEIGHT - 2}" fill="none"/>')
        parts.append(f'<text class="handed" x="{middle + 12}" y="{bottom + 17}">{escape(handed)}</text>')
    for number, folder in enumerate(others):
        top = y + TITLE_HEIGHT + number * (BOX_HEIGHT + GAP)
        _box(parts, folder, x + 2 * GAP + box_width, top, box_width)
    return y + TITLE_HEIGHT + room


def _room(parts: list[str], package: str, x: int, y: int, width: int, height: int) -> None:
    parts.append(f'<rect class="room" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>')
    parts.append(f'<text class="title" x="{x + GAP}" y="{y + 21}">{escape(TITLES[package])}</text>')


def _box(parts: list[str], folder: Folder, x: int, y: int, width: int, *, main: bool = False) -> None:
    kind = "box main" if main else "box"
    parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{BOX_HEIGHT}" rx="4"/>')
    parts.append(f'<text class="name" x="{x + 8}" y="{y + 17}">{escape(folder.name)}/</text>')
    characters = int(width / 6.6)
    _lines(parts, "says", _wrapped(folder.says, characters, 2), x + 8, y + 33)
    if folder.uses:
        uses = _wrapped("imports " + ", ".join(folder.uses), int(characters * 1.1), 1)
        _lines(parts, "uses", uses, x + 8, y + BOX_HEIGHT - 8)


def _lines(parts: list[str], kind: str, lines: Sequence[str], x: int, y: int) -> None:
    for number, line in enumerate(lines):
        parts.append(f'<text class="{kind}" x="{x}" y="{y + 14 * number}">{escape(line)}</text>')


def _wrapped(text: str, characters: int, lines: int) -> list[str]:
    return textwrap.wrap(text.replace("`", ""), characters, max_lines=lines, placeholder=" …") if text else []


if __name__ == "__main__":
    PICTURE.write_text(render(), encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")
