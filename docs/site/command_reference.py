"""A MkDocs hook: the page commands.md lists every command of ``shardmill`` with its arguments and options.

It is made from the command line itself, as ``shardmill COMMAND --help`` is, so the repository has no copy.
"""

from __future__ import annotations

import html
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from shardmill.flows.cli import root
from shardmill.flows.cli.help import described, explained, shown, typed, usage
from shardmill.flows.cli.tree import all_commands

_INTRODUCTION = """\
# Commands

The commands of `shardmill`, with their arguments and options. `shardmill COMMAND --help` prints the same.

"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    files.append(File.generated(config, "commands.md", content=render()))
    return files


def render() -> str:
    """The whole page."""
    return _INTRODUCTION + "\n".join(_section(command, path) for path, command in all_commands(root()))


def _section(command: Any, path: str) -> str:
    paragraphs, examples = described(command.help)
    rows = [f"| `{_cell(typed(one))}` | {_cell(_text(explained(one)))} |" for one in shown(command)]
    table = ["| | |", "|---|---|", *rows] if rows else []
    code = ["```", *examples, "```"] if examples else []
    text = [line for paragraph in paragraphs for line in (_text(paragraph), "")]
    return "\n".join([f"## {path}", "", f"`{usage(command, path)}`", "", *text, *code, "", *table, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _text(text: str) -> str:
    return html.escape(" ".join(text.split()), quote=False)
