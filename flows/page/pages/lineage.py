"""The lineage of a dataset, from its source to models, and the aliases of models with their history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from shardmill.flows.page.platform import Platform
from shardmill.flows.page.reading.aliases import alias_rows
from shardmill.flows.page.reading.datasets import VersionRow
from shardmill.flows.page.reading.runs import RunRow
from shardmill.flows.page.rendering import list_page, render
from shardmill.training.aliases.history import aliases_by_run

_VERSIONS = 20


@dataclass(frozen=True, slots=True)
class Descent:
    """A version, and the runs that were trained on it, each with its main figure."""

    version: VersionRow
    runs: Sequence[RunRow]


def show(request: Request) -> Response:
    """Return the page: of the dataset that ``?dataset=`` names, or a list of all."""
    platform: Platform = request.app.state.platform
    name = request.query_params.get("dataset")
    if name is None:
        page = list_page(request, platform.datasets.names())
        return render(request, "lineage_of.html.j2", title="Lineage", page=page)
    numbers = list_page(request, platform.datasets.versions(name), _VERSIONS)
    trained, names = _by_version(platform), aliases_by_run(platform.runs.storage, name)
    descents = [
        Descent(row, trained.get(row.ref, ())) for row in platform.datasets.version_rows(name, numbers.items)
    ]
    return render(
        request,
        "lineage.html.j2",
        title=f"Lineage of {name}",
        name=name,
        descents=descents,
        page=numbers,
        aliases=names,
    )


def _by_version(platform: Platform) -> Mapping[str, Sequence[RunRow]]:
    """Return version -> runs that were trained on it, or on a view of it."""
    found: dict[str, list[RunRow]] = {}
    for row in platform.runs.rows():
        found.setdefault(row.dataset.partition("?")[0], []).append(row)
    return found


_DECISIONS = 20


def show_aliases(request: Request) -> Response:
    """Return the page."""
    platform: Platform = request.app.state.platform
    page = list_page(request, alias_rows(platform.runs.storage), 20)
    return render(request, "aliases.html.j2", title="Aliases", page=page, most=_DECISIONS)
