"""A MkDocs hook: the page names.md lists settings, commands, errors and reasons by name, with links to each.

Lines of settings and of reasons in their pages get anchors, which the pages in the repository do without.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.config.maintain import MaintainConfig
from shardmill.beam_jobs.reasons import REASONS
from shardmill.flows.cli import root
from shardmill.flows.cli.tree import all_commands
from shardmill.infra import errors
from shardmill.infra.settings.keys import settings_of
from shardmill.training.config import TrainConfig
from shardmill.training.promotion.rules import PromotionRules

# Heading in configuration.md -> what stands before the names of its settings in an anchor, and their model.
SECTIONS = {
    "`[prepare]`": ("prepare", PrepareConfig),
    "`[train]`": ("train", TrainConfig),
    "Rules of promotion": ("promote", PromotionRules),
    "`[maintain]`": ("maintain", MaintainConfig),
}
_SETTING = re.compile(r"^- `([\w.]+)")
_REASON = re.compile(r"^- `(\w+)`: ")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    files.append(File.generated(config, "names.md", content=render()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put an anchor before each setting, and before each reason."""
    if page.file.src_uri == "configuration.md":
        return "\n".join(_with_anchors(markdown.split("\n")))
    if page.file.src_uri == "recover-from-failures.md":
        return "\n".join(map(_reason_anchored, markdown.split("\n")))
    return markdown


def _reason_anchored(line: str) -> str:
    return _anchored(line, _REASON, "reason", REASONS)


def _with_anchors(lines: Iterable[str]) -> Iterable[str]:
    prefix, known = "", frozenset[str]()
    for line in lines:
        if line.startswith("## ") and line[3:] in SECTIONS:
            prefix, model = SECTIONS[line[3:]]
            known = frozenset(setting.key for setting in settings_of(model))
        yield _anchored(line, _SETTING, prefix, known)


def _anchored(line: str, pattern: re.Pattern[str], prefix: str, known: Iterable[str]) -> str:
    found = pattern.match(line)
    if found is None or found[1] not in known:
        return line
    return f'- <a id="{prefix}.{found[1]}"></a>{line[2:]}'


def render() -> str:
    """Return the whole page."""
    settings = [
        (setting.key, f"configuration.md#{prefix}.{setting.key}", prefix)
        for prefix, model in SECTIONS.values()
        for setting in settings_of(model)
    ]
    commands = [(path, f"commands.md#{path.replace(' ', '-')}", "") for path, _ in all_commands(root())]
    kinds = [
        (name, f"errors.md#{name.lower()}", "")
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.ShardmillError)
    ]
    reasons = [(reason, f"recover-from-failures.md#reason.{reason}", "") for reason in REASONS]
    parts = {"Settings": settings, "Commands": commands, "Errors": kinds, "Reasons of refused files": reasons}
    return "# Index\n" + "".join(f"\n## {title}\n\n{_list(names)}" for title, names in parts.items())


def _list(names: Iterable[tuple[str, str, str]]) -> str:
    """Return a line a name, with a link and what tells it from others of its name."""
    lines = (f"- [`{name}`]({link}) {beside}".rstrip() for name, link, beside in sorted(names))
    return '<div class="names" markdown>\n\n' + "\n".join(lines) + "\n\n</div>\n"
