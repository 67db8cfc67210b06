"""A MkDocs hook: the comment ``<!-- api: module.name -->`` of a page becomes the docstring of that name.

The comment is invisible where the file is read in a repository browser, which would show a directive of
mkdocstrings as text. Options follow the name: ``<!-- api: shardmill.training.reading.Batch members=false
-->``.
"""

from __future__ import annotations

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

_MARK = re.compile(r"^<!-- api: ([\w.]+)((?: \w+=\S+)*) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace each comment by the directive that mkdocstrings understands."""
    return _MARK.sub(_directive, markdown)


def _directive(mark: re.Match[str]) -> str:
    options = [option.split("=", 1) for option in mark[2].split()]
    lines = [f"        {name}: {value}" for name, value in options]
    return "\n".join([f"::: {mark[1]}", *(["    options:", *lines] if lines else [])])
