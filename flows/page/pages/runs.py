"""The pages of training runs, one at a time or side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from shardmill.flows.page.files import RUN_REPORT, pictures_of, run_file
from shardmill.flows.page.options import path_of
from shardmill.flows.page.pages.charts import (
    MOST_CURVES,
    compared_charts,
    curve_kind,
    latest,
    legend,
    run_charts,
)
from shardmill.flows.page.platform import Platform
from shardmill.flows.page.reading.runs import BROKEN, TRAINING, RunRow
from shardmill.flows.page.rendering import list_page, render
from shardmill.infra.dataset.views.references import parse_joined
from shardmill.infra.edited_csv import edited_rows
from shardmill.infra.errors import DataError, ShardmillError
from shardmill.infra.html.page import differing_settings, setting_rows
from shardmill.training.aliases.history import aliases_by_run
from shardmill.training.metrics.figures import FIGURES, is_smaller_better
from shardmill.training.promotion.purged import purged_in_words
from shardmill.training.results.predictions.file import DATA_SET, placed
from shardmill.training.results.predictions.label_errors.found import LABEL_ERRORS_FILE
from shardmill.training.results.run_files.rank_balance import BALANCE_FILE, read_balance
from shardmill.training.results.run_files.run_folder import RunFolder

_COLUMNS = ("name", "changed", "dataset", "model", "state")
_LABEL_ERRORS = 10
_LARGEST_CSV_BYTES = 8 << 20


def list_all(request: Request) -> Response:
    """Return the page of all runs, sorted by the column or figure of the test split that ``?sort=`` names."""
    platform: Platform = request.app.state.platform
    rows = platform.runs.rows()
    figures = [name for name in FIGURES if any(name in row.figures for row in rows)]
    wanted = request.query_params.get("sort", "-changed")
    column, falls = wanted.removeprefix("-"), wanted.startswith("-")
    if column not in _COLUMNS and column not in figures:
        column, falls = "changed", True
    return render(
        request,
        "runs.html.j2",
        title="Training runs",
        page=list_page(request, _sorted(rows, column, falls)),
        column=column,
        falls=falls,
        columns=[("name", "run"), ("dataset", "dataset"), ("model", "model"), ("state", "state")],
        figures=[(name, FIGURES[name]) for name in figures],
        best_first=lambda name: name if is_smaller_better(name) else f"-{name}",
        folder=platform.runs.uri,
    )


def show(request: Request) -> Response:
    """Return the page of one run."""
    platform: Platform = request.app.state.platform
    name = request.path_params["name"]
    row = platform.runs.row(name)
    values = _live_values(platform, row)
    if row.state == BROKEN:
        return render(request, "run_broken.html.j2", title=name, row=row)
    run = platform.runs.open(name)
    label_errors, unread = _label_errors(run.path)
    return render(
        request,
        "run.html.j2",
        title=name,
        **values,
        version=_version_path(run.dataset),
        splits=_split_figures(run),
        pictures=pictures_of(run.path),
        has_report=(run.path / RUN_REPORT).is_file(),
        label_errors=label_errors,
        ranks=_ranks(run.path),
        settings=list(setting_rows(_config(run))),
        notes=[*(run.result or {}).get("notes", []), *_purged(run.path), *unread],
        aliases=aliases_by_run(platform.runs.storage).get(name, ()),
        export=(run.result or {}).get("export_dir"),
    )


def live(request: Request) -> Response:
    """Return the part of a run's page that is updated while one looks at it."""
    platform: Platform = request.app.state.platform
    row = platform.runs.row(request.path_params["name"])
    answer = render(request, "run_live.html.j2", **_live_values(platform, row))
    if row.state != TRAINING:
        answer.headers["X-Ended"] = "true"
    return answer


def report(request: Request) -> Response:
    """Return the report of a run."""
    platform: Platform = request.app.state.platform
    return run_file(platform.runs.path(request.path_params["name"]), RUN_REPORT)


def file(request: Request) -> Response:
    """Return a picture of a run."""
    platform: Platform = request.app.state.platform
    return run_file(platform.runs.path(request.path_params["name"]), request.path_params["file"])


def _sorted(rows: Sequence[RunRow], column: str, falls: bool) -> list[RunRow]:
    """Sort runs; those that lack a figure come last in either order."""

    def value(row: RunRow) -> Any:
        return getattr(row, column) if column in _COLUMNS else row.figures[column]

    known = [row for row in rows if column in _COLUMNS or column in row.figures]
    lacking = [row for row in rows if column not in _COLUMNS and column not in row.figures]
    return [*sorted(known, key=value, reverse=falls), *lacking]


def _live_values(platform: Platform, row: RunRow) -> dict[str, Any]:
    curves = platform.runs.curves(row.name)
    return {
        "row": row,
        "is_live": row.state == TRAINING,
        "charts": list(run_charts(curves)),
        "legend": legend(curves),
        "latest": latest(curves),
    }


def _version_path(dataset: str) -> str | None:
    """Return the address of the version that a run was trained on."""
    try:
        of = parse_joined(dataset).parts[0].reference
    except ShardmillError:
        return None
    return (
        path_of("datasets", of.name, of.version) if of.version.isdecimal() else path_of("datasets", of.name)
    )


def _split_figures(run: RunFolder) -> list[tuple[str, Sequence[tuple[str, str]]]]:
    """Return (split, [(name, value as text), ...]), the test split first."""
    found = []
    for split, figures in (run.result or {}).get("metrics", {}).items():
        told = [
            (figure.words, figure.text(figures[name]))
            for name, figure in FIGURES.items()
            if isinstance(figures.get(name), int | float)
        ]
        found.append((split, told))
    return sorted(found, key=lambda row: row[0] != "test")


def _config(run: RunFolder) -> Mapping[str, Any]:
    try:
        return run.config()
    except (ShardmillError, KeyError, TypeError):
        return {}


def _purged(run: Path) -> list[str]:
    """Say that the run learned from records that were removed since."""
    try:
        words = purged_in_words(run)
    except ShardmillError as error:
        words = str(error)
    return [] if words is None else [words]


def _label_errors(run: Path) -> tuple[Sequence[Mapping[str, str]], Sequence[str]]:
    """Return the likeliest label errors of a run, empty if it looked for none, and what is not read."""
    path, skipped = run / LABEL_ERRORS_FILE, list[DataError]()
    try:
        if path.is_symlink() or path.stat().st_size > _LARGEST_CSV_BYTES:
            return [], []
        listed = edited_rows(path.read_bytes(), path.name, lambda *_: None, skipped)
        rows = [row for _, row in islice(listed, _LABEL_ERRORS)]
    except OSError:
        return [], []
    except DataError as error:
        return [], [f"{error.message}: {error.remedy}"]
    wanted = ("split", "given_label", "suggested_label", "score")
    found = [
        {name: row.get(name) or "" for name in wanted}
        | {"place": placed(row.get(DATA_SET) or "", row.get("source_uri") or "")}
        for row in rows
    ]
    return found, [error.message for error in skipped]


def _ranks(run: Path) -> dict[str, Any] | None:
    """Return the table of the work of each rank, with warnings; None if the run has one rank."""
    if not (run / BALANCE_FILE).is_file():
        return None
    try:
        found = read_balance(run)
        columns, rows = found.table()
    except (ShardmillError, KeyError, TypeError, ValueError) as error:
        return {"epoch": 0, "columns": [], "rows": [], "warnings": [f"{BALANCE_FILE}: {error}"]}
    return {"epoch": found.epoch, "columns": columns, "rows": rows, "warnings": found.warnings}


@dataclass(frozen=True, slots=True)
class _FigureRow:
    """A figure of several runs: its name, the value of each as text, and the places of the best."""

    words: str
    values: Sequence[str]
    best: frozenset[int]


def compare(request: Request) -> Response:
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
        settings=list(differing_settings(*map(_described, runs)).items()),
        charts=list(compared_charts([(run.name, platform.runs.curves(run.name)) for run in runs])),
        on_one_version=len({run.dataset for run in runs}) <= 1,
        most=MOST_CURVES,
    )


def _figure_rows(runs: Sequence[RunFolder], split: str) -> list[_FigureRow]:
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
        rows.append(_FigureRow(figure.words, texts, winners if len(values) > 1 else frozenset()))
    return rows


def _described(run: RunFolder) -> Mapping[str, Any]:
    try:
        return {"dataset": run.dataset, **run.config()}
    except (ShardmillError, KeyError, TypeError, AttributeError):
        return {"dataset": "its settings cannot be read"}
