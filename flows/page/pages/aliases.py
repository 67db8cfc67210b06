"""The page of the aliases of models and their history."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from shardmill.flows.page.paging import list_page
from shardmill.flows.page.platform import Platform
from shardmill.flows.page.reading.aliases import alias_rows
from shardmill.flows.page.rendering import render

_DECISIONS = 20


def show(request: Request) -> Response:
    """Return the page."""
    platform: Platform = request.app.state.platform
    page = list_page(request, alias_rows(platform.runs.storage), 20)
    return render(request, "aliases.html.j2", title="Aliases", page=page, most=_DECISIONS)
