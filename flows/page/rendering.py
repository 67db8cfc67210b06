"""Fill the templates of the page, long lists cut into pages. Every text is escaped and made visible."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from jinja2 import Environment
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from shardmill.flows.page.options import path_of, query_of
from shardmill.infra.html.page import environment, style_sheet

_LINKS = (
    ("Overview", "/"),
    ("Datasets", "/datasets"),
    ("Runs", "/runs"),
    ("Review", "/review"),
    ("Lineage", "/lineage"),
    ("Aliases", "/aliases"),
)


def render(request: Request, template: str, /, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page, or a part of one, as the answer to a request."""
    platform = request.app.state.platform
    options, copy = platform.options, platform.runs.copy
    text = templates().get_template(template).render(
        links=_LINKS,
        here=request.url.path,
        prefect_ui=options.ui_url,
        runs_problem=copy and copy.problem,
        has_tensorboard=options.tensorboard_url is not None,
        style=static_path("page.css"),
        script=static_path("live.js"),
        review_script=static_path("review.js"),
        **values,
    )  # fmt: skip
    return HTMLResponse(text, status)


@cache
def templates() -> Environment:
    """Return the environment of all templates of the page."""
    folder = resources.files("shardmill.flows.page").joinpath("templates")
    made = environment(lambda name: folder.joinpath(name).read_text(encoding="utf-8"))
    made.globals.update(path_of=path_of, query_of=query_of)
    made.filters.update(moment=moment, ago=ago, short=short, exact=escape)
    return made


@cache
def static_files() -> dict[str, tuple[bytes, str]]:
    """Return name -> (content, media type) of the files that pages load."""
    folder = resources.files("shardmill.flows.page").joinpath("static")
    style = style_sheet() + folder.joinpath("page.css").read_text(encoding="utf-8")
    scripts = {name: folder.joinpath(name).read_bytes() for name in ("live.js", "review.js")}
    found = {name: (script, "text/javascript") for name, script in scripts.items()}
    return found | {"page.css": (style.encode("utf-8"), "text/css")}


@cache
def static_path(name: str) -> str:
    """Return the address of a file that pages load; it changes with the content."""
    digest = hashlib.sha256(static_files()[name][0]).hexdigest()[:12]
    return f"/static/{name}?{digest}"


def moment(seconds: float) -> str:
    """Return a time (seconds since 1970) as ``2026-11-21 02:35 UTC``; a dash for 0."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC" if seconds else "—"
    except (OverflowError, ValueError, OSError):
        return "—"


def ago(seconds: float) -> str:
    """Return how long ago a time (seconds since 1970) was, or in how long it will be."""
    passed = time.time() - seconds
    words = _duration(abs(passed))
    return f"{words} ago" if passed >= 0 else f"in {words}"


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def short(value: float) -> str:
    """Return a figure to four significant digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


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
        _address(request, "page", number - 1) if number > 1 else None,
        _address(request, "page", number + 1) if number < count else None,
    )


def page_from(
    request: Request, items: Sequence[T], rows: int, start: int, name_of: Callable[[T], str]
) -> ListPage[T]:
    """Return a page of a list that changes meanwhile; its neighbours are ``?after=`` the name of an item.

    Args:
        request: the request.
        items: all items.
        rows: items of a page.
        start: number of the page's first item, from 0.
        name_of: returns the name of an item.
    """
    before, end = start - rows, start + rows
    number = -(-start // rows) + 1
    back = (
        _address(request, "after", name_of(items[before - 1])) if before > 0 else _address(request, "page", 1)
    )
    return ListPage(
        items[start:end],
        number,
        number - 1 + max(1, -(-(len(items) - start) // rows)),
        len(items),
        back if start else None,
        _address(request, "after", name_of(items[end - 1])) if end < len(items) else None,
    )


def _address(request: Request, place: str, value: object) -> Markup:
    others = [one for one in request.query_params.multi_items() if one[0] not in ("page", "after")]
    return escape(f"{quote(request.url.path)}?{urlencode([*others, (place, value)])}")
