"""The blocks of code of the documentation, and what comments say about running them.

Two comments, invisible to readers, may stand before a block:

- ``<!-- not run: needs a GPU -->``: the block cannot run in a test. Its commands are still checked.
- ``<!-- run first: command; command -->``: what the test does before the block, in place of what happened to
  the reader by then (photographs were added, a model was trained).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!-- (not run|run first): (.*?) -->", re.DOTALL)
_COMMENTS = re.compile(r"((?:<!-- (?:not run|run first): (?:(?!-->).)*-->\s*)+)\Z", re.DOTALL)
_FILE = re.compile(r"# ([\w./-]+\.(?:py|toml|csv))\n")
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
# Words that begin a command; a block that begins with none of them is a tree of files or an output.
_COMMANDS = {
    *("shardmill", "python", "make", "source", "export", "pip", "prefect", "torchrun", "curl", "srun"),
    *("pre-commit", "sky", "git"),
}


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code.

    Attributes:
        page: its file.
        line: the number of its first line.
        kind: ``python``, ``shell``, ``toml``, ``file`` (to be saved), or ``text`` for others.
        text: what stands between the fences.
        file: where the reader is to save it, or "".
        run_first: shell commands that a test runs before it, or "".
        not_run: why a test cannot run it, or "".
    """

    page: Path
    line: int
    kind: str
    text: str
    file: str
    run_first: str
    not_run: str

    @property
    def place(self) -> str:
        """Page and line, for messages."""
        return f"{self.page.name}:{self.line}"

    def commands(self) -> list[str]:
        """The commands of a shell block, one a line, continued lines joined."""
        if self.kind != "shell":
            return []
        lines = self.text.replace("\\\n", " ").splitlines()
        if any(line.startswith("$ ") for line in lines):
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, from top to bottom."""
    text = page.read_text(encoding="utf-8")
    for fence in _FENCE.finditer(text):
        before = _COMMENTS.search(text[: fence.start()])
        comments = dict(_COMMENT.findall(before[1])) if before else {}
        inside = "".join(line.removeprefix(fence[1]) for line in fence[3].splitlines(keepends=True))
        named = _FILE.match(inside)
        yield Block(
            page,
            text[: fence.start()].count("\n") + 2,
            "file" if named else _kind(fence[2], inside),
            inside,
            named[1] if named else "",
            " ".join(comments.get("run first", "").split()),
            " ".join(comments.get("not run", "").split()),
        )


def inline_code(page: Path) -> list[str]:
    """The texts between single backticks outside of blocks."""
    return _INLINE.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))


def _kind(language: str, text: str) -> str:
    if language in ("python", "toml"):
        return language
    first = re.search(r"^(?:\$ )?(?:[A-Z_]+=\S* )*([\w.-]+)", re.sub(r"^#.*\n", "", text))
    if language in ("bash", "sh", "shell", "console") or (not language and first and first[1] in _COMMANDS):
        return "shell"
    return "text"
