"""Links lead somewhere, the paths that CONTRIBUTING names exist, and every page is in both lists of pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[1]
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").glob("*.md"))]
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_PATH = re.compile(r"`((?:beam_jobs|training|infra|flows|tests|docs)/[\w./-]*)`")


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        to = page.parent / name if name else page
        assert to.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(to), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_headings_and_rows_stand_once(page: Path) -> None:
    """What repeats a heading or the first cell of a table is left over; the changelog repeats on purpose."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^##+ .+$", text, re.MULTILINE)
    assert page.name == "CHANGELOG.md" or [name for name in headings if headings.count(name) > 1] == []
    for rows in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        names = re.findall(r"^\| (`[^|]+?`) \|", rows, re.MULTILINE)
        assert [name for name in names if names.count(name) > 1] == []


def test_names_that_a_source_of_ones_own_imports_are_public() -> None:
    guide = (REPOSITORY / "docs" / "add-a-source-kind.md").read_text(encoding="utf-8")
    public = (REPOSITORY / "docs" / "python-api.md").read_text(encoding="utf-8")
    imports = re.findall(r"^from (shardmill[\w.]*) import (.+)$", guide, re.MULTILINE)
    names = [f"{module}.{name.strip()}" for module, names in imports for name in names.split(",")]
    assert len(names) > 8
    told = [name for name in names if name in public or f"`{name.rpartition('.')[2]}`" in public]
    assert told == names


def test_paths_in_contributing_exist() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = _PATH.findall(text)
    assert len(named) > 20
    assert [path for path in named if not (REPOSITORY / path).exists()] == []


def test_names_of_the_python_interface_exist() -> None:
    """The site shows their docstrings; here their modules are read, not imported."""
    page = (REPOSITORY / "docs" / "python-api.md").read_text(encoding="utf-8")
    named = re.findall(r"^(shardmill[\w.]*)", page, re.MULTILINE)
    assert len(named) > 20
    assert [name for name in named if not _is_defined(name)] == [], "mend the comments of docs/python-api.md"


def _is_defined(name: str) -> bool:
    """Tell whether a module of the repository, or a class or function in one, has this name."""
    path = REPOSITORY / name.replace(".", "/")
    if path.with_suffix(".py").exists() or (path / "__init__.py").exists():
        return True
    package, module = path.parent / "__init__.py", path.parent.with_suffix(".py")
    if package.exists() and f'"{path.name}"' in package.read_text(encoding="utf-8"):
        return True  # in __all__
    return module.exists() and bool(
        re.search(rf"^(?:def|class) {path.name}\b", module.read_text(encoding="utf-8"), re.MULTILINE)
    )


class _Navigation(yaml.SafeLoader):
    """Reads mkdocs.yml without making the Python objects that it names."""


for _tag in ("tag:yaml.org,2002:python/", "!ENV"):
    _Navigation.add_multi_constructor(_tag, lambda loader, suffix, node: None)


def test_every_page_is_in_the_navigation_and_in_the_readme() -> None:
    navigation = yaml.load((REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8"), _Navigation)["nav"]
    listed = [page for section in navigation for pages in section.values() for page in pages]
    assert len(listed) == len(set(listed))
    pages = {page.name for page in (REPOSITORY / "docs").glob("*.md")}
    made = {"index.md", "quickstart.md", "contributing.md", "changelog.md", "security.md"}
    made |= {"names.md", "commands.md", "errors.md"}
    assert set(listed) - made == pages, "list each page of docs/ in the part `nav` of mkdocs.yml"
    linked = set(
        re.findall(r"\]\(docs/([\w-]+\.md)\)", (REPOSITORY / "README.md").read_text(encoding="utf-8"))
    )
    assert pages - linked == set(), "link each page of docs/ in README.md"
