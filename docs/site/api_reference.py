"""A MkDocs hook: a comment ``<!-- api:`` with a name a line becomes the docstrings of these names.

The comment is invisible where the file is read in a repository browser, which would show a directive of
mkdocstrings as text. Options follow the name: ``shardmill.training.reading.Batch members=false``.
"""

from __future__ import annotations

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

_MARK = re.compile(r"^<!-- api:\n((?:[\w.]+(?: \w+=\S+)*\n)+)-->$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace each name by the directive that mkdocstrings understands."""
    return _MARK.sub(lambda mark: "\n\n".join(map(_directive, mark[1].splitlines())), markdown)


def _directive(line: str) -> str:
    name, *options = line.split()
    lines = [f"        {key}: {value}" for key, value in (option.split("=", 1) for option in options)]
    return "\n".join([f"::: {name}", *(["    options:", *lines] if lines else [])])
