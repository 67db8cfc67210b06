"""report: find, open, copy or rebuild the HTML page of a dataset version or of a training run."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardmill.flows.cli import options, output
from shardmill.flows.cli.folders import catalog_at, run_named
from shardmill.flows.parameters import root_or_default
from shardmill.infra.storage.local import writes

if TYPE_CHECKING:
    from shardmill.infra.dataset.catalog import Catalog
    from shardmill.infra.dataset.version import DatasetVersion
    from shardmill.training.results.run_files.run_folder import RunFolder

Open = Annotated[bool, typer.Option("--open", help="Open it in the browser")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Copy it to this file, to send or to keep")
]
Rebuild = Annotated[bool, typer.Option("--rebuild", help="Write it again from the version's files")]


def report(
    subject: options.Subject,
    open_it: Open = False,
    out: Out = None,
    rebuild: Rebuild = False,
    root: options.Root = None,
    runs: options.Runs = None,
    json_output: options.Json = False,
) -> None:
    """Print the path of the HTML page about a version or a run.

    The page of a run is drawn again from its files, also while the run is unfinished.

    Examples:
      shardmill report photos --open
      shardmill report photos@2 --out photos-2.html
      shardmill report photos-v1-3f2a9c --open
    """
    from shardmill.infra.storage.filesystem import Storage

    run = run_named(subject, runs, root)
    if run is None:
        catalog = catalog_at(root)
        opened = _with_page(catalog, catalog.open(subject))
        path, rebuilt = _page(catalog, opened, rebuild)
        storage, about = opened.storage, {"dataset": opened.name, "version": opened.version}
    else:
        path, rebuilt = _run_page(run, root), True
        storage, about = Storage.at(run.path), {"run": run.name}
    local = storage.local_path(path)
    place = str(local) if local is not None else f"{storage.uri}/{path}"
    if out is not None:
        page = storage.read_bytes(path)
        with writes(out):
            out.write_bytes(page)
        local, place = out.absolute(), str(out)
    output.answer({**about, "report": place, "rebuilt": rebuilt}, json_output, place)
    if open_it:
        _open(local, place)


def _run_page(run: RunFolder, root: str | None) -> str:
    """Draw the page of a run; return its path in the run's folder."""
    from shardmill.training.results.report.drawing import draw_run_report

    return draw_run_report(run, root_or_default(root)).name


def _with_page(catalog: Catalog, version: DatasetVersion) -> DatasetVersion:
    """The version that has the page: a rollback shares the page of the version that it restores."""
    shown = version
    while shown.manifest.restores in catalog.versions(version.name):
        shown = catalog.open(f"{version.name}@{shown.manifest.restores}")
    if shown is not version:
        output.note(f"note: {version.ref} restores {shown.ref} and shares its page")
    return shown


def _page(catalog: Catalog, opened: DatasetVersion, rebuild: bool) -> tuple[str, bool]:
    """(path of the page in the dataset, whether it was written just now)."""
    from shardmill.beam_jobs.report import report_path, write_report
    from shardmill.infra.dataset.lock import lock_for_adding
    from shardmill.infra.dataset.publishing import record_report

    path = report_path(opened.storage, opened.manifest)
    if rebuild or not opened.storage.exists(path):
        with lock_for_adding(opened.storage, opened.name):
            made = write_report(opened.storage, opened.manifest)
            record_report(catalog, opened.name, made)
        return made, True
    return path, False


def _open(local: Path | None, place: str) -> None:
    if local is None:
        output.note("note: a browser cannot open it from there; copy it here with --out FILE")
    elif not webbrowser.open(local.absolute().as_uri()):
        output.note(f"note: no browser was found; open {place} in one")
