"""A MkDocs hook: the pages that lie beside docs/ (README, CONTRIBUTING, ...) become pages of the site."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

# file of the repository -> page of the site
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
_ASSETS = Path(__file__).with_name("assets")
_LINK = re.compile(r"(\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s#]*)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages beside docs/, and the style sheet and script of the site."""
    root = Path(config.config_file_path).parent
    for name, page in OUTSIDE.items():
        text = (root / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=rewrite_links(text)))
    for asset in sorted(path for path in _ASSETS.rglob("*") if path.is_file()):
        to = f"assets/{asset.relative_to(_ASSETS).as_posix()}"
        files.append(File.generated(config, to, abs_src_path=str(asset)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links out of docs/ at the pages of the site."""
    return _widen_list_indents(rewrite_links(markdown))


def rewrite_links(markdown: str) -> str:
    """Replace links to files of the repository by links to pages of the site, or by their text."""
    return _LINK.sub(_rewritten, markdown)


def _rewritten(link: re.Match[str]) -> str:
    text, target, anchor = link[1], link[2], link[3] or ""
    if "://" in target or not target:
        return link[0]
    path = target.removeprefix("../").removeprefix("docs/").replace(".ipynb", ".md")
    if path in OUTSIDE:
        return f"{text}({OUTSIDE[path]}{anchor})"
    if (
        target.startswith("../") or target == "LICENSE"
    ):  # a file of the repository that the site does not have
        return text[1:-1]
    return f"{text}({path}{anchor})"


def _widen_list_indents(markdown: str) -> str:
    """Indent the blocks inside numbered lists by 4 spaces, as Python-Markdown wants; GitHub takes 3."""
    lines, inside = [], False
    for line in markdown.split("\n"):
        if re.match(r"\d+\. ", line):
            inside = True
        elif line and not line.startswith("   "):
            inside = False
        lines.append(f" {line}" if inside and line.startswith("   ") else line)
    return "\n".join(lines)
