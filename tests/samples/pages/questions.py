"""Questions of tests about a page."""

from __future__ import annotations

from html.parser import HTMLParser


class Elements(HTMLParser):
    """Every element of a page with its attributes, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._pieces: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data
        self._pieces += data.split()

    @property
    def words(self) -> str:
        """All text, what stands in different elements apart by a space."""
        return " ".join(self._pieces)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every element of this kind."""
        return [attributes for name, attributes in self.found if name == tag]


def section(page: str, name: str) -> str:
    """The markup of the section with this id."""
    return page.split(f'<section id="{name}">', 1)[1].split("</section>", 1)[0]
