"""Cut long lists into pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape
from starlette.requests import Request

T = TypeVar("T")

ROWS = 50


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """One page of a list.

    Attributes:
        items: rows of this page.
        number, count: of this page, from 1, and of all pages.
        total: the items of all pages.
        before, after: the addresses of the neighbours; None at the ends.
    """

    items: Sequence[T]
    number: int
    count: int
    total: int
    before: Markup | None
    after: Markup | None


def list_page(request: Request, items: Sequence[T], rows: int = ROWS) -> ListPage[T]:
    """Return page ``?page=N`` of a list, or the nearest page if there is no page N."""
    count = max(1, -(-len(items) // rows))
    asked = request.query_params.get("page", "1")
    number = int(asked) if asked.isascii() and asked.isdecimal() and len(asked) < 10 else 1
    number = min(max(number, 1), count)
    return ListPage(
        items[(number - 1) * rows : number * rows],
        number,
        count,
        len(items),
        _address(request, number - 1) if number > 1 else None,
        _address(request, number + 1) if number < count else None,
    )


def _address(request: Request, number: int) -> Markup:
    others = [(name, value) for name, value in request.query_params.multi_items() if name != "page"]
    return escape(f"{quote(request.url.path)}?{urlencode([*others, ('page', number)])}")
