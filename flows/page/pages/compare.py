"""Runs side by side: figures, the settings that differ, and curves laid over each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from shardmill.flows.page.pages.charts import MOST_CURVES, compared_charts, curve_kind
from shardmill.flows.page.platform import Platform
from shardmill.flows.page.rendering import render
from shardmill.infra.errors import ShardmillError
from shardmill.infra.html.page import differing_settings
from shardmill.training.metrics.figures import FIGURES
from shardmill.training.results.run_files.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A figure of several runs: its name, the value of each as text, and the places of the best."""

    words: str
    values: Sequence[str]
    best: frozenset[int]


def show(request: Request) -> Response:
    """Return the comparison of the runs that ``?run=A&run=B`` names."""
    platform: Platform = request.app.state.platform
    names = list(dict.fromkeys(request.query_params.getlist("run")))
    runs, problems = [], []
    for name in names[:MOST_CURVES]:
        try:
            runs.append(platform.runs.open(name))
        except ShardmillError as error:
            problems.append(str(error))
    if len(names) > MOST_CURVES:
        problems.append(f"{len(names)} runs were asked for; the first {MOST_CURVES} are shown")
    return render(
        request,
        "compare.html.j2",
        title="Compare runs",
        runs=[(run.name, run.dataset, run.model, curve_kind(index)) for index, run in enumerate(runs)],
        problems=problems,
        figures=[(split, rows) for split in ("test", "validation") if (rows := _figure_rows(runs, split))],
        settings=_differing(runs),
        charts=list(compared_charts([(run.name, platform.runs.curves(run.name)) for run in runs])),
        on_one_version=len({run.dataset for run in runs}) <= 1,
        most=MOST_CURVES,
    )


def _figure_rows(runs: Sequence[RunFolder], split: str) -> list[FigureRow]:
    rows = []
    found = [(run.result or {}).get("metrics", {}).get(split, {}) for run in runs]
    for name, figure in FIGURES.items():
        values = {
            index: float(of_run[name])
            for index, of_run in enumerate(found)
            if isinstance(of_run.get(name), int | float)
        }
        if not values:
            continue
        best = min(values.values()) if figure.falls else max(values.values())
        texts = [figure.text(values[index]) if index in values else "—" for index in range(len(runs))]
        winners = frozenset(index for index, value in values.items() if value == best)
        rows.append(FigureRow(figure.words, texts, winners if len(values) > 1 else frozenset()))
    return rows


def _differing(runs: Sequence[RunFolder]) -> list[tuple[str, Sequence[str]]]:
    """Return (setting, its value in each run) of the settings that are not the same in all."""
    return list(differing_settings(*map(_described, runs)).items())


def _described(run: RunFolder) -> Mapping[str, Any]:
    try:
        return {"dataset": run.dataset, **run.config()}
    except (ShardmillError, KeyError, TypeError, AttributeError):
        return {"dataset": "its settings cannot be read"}
