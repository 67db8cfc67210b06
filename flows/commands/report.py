"""report: the page of a version, where it lies, in a browser, as a copy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands import options

if TYPE_CHECKING:
    from infra.catalog import Catalog, DatasetVersion

Open = Annotated[bool, typer.Option("--open", help="Open it in the browser")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Copy it to this file, to send or to keep")
]
Rebuild = Annotated[
    bool, typer.Option("--rebuild", help="Make it anew from the version's files, as when it is missing")
]


def report(
    dataset: options.Ref,
    open_it: Open = False,
    out: Out = None,
    rebuild: Rebuild = False,
    root: options.Root = None,
    json_output: options.Json = False,
) -> None:
    """Print where the report of a version lies: one page of what went in and what came out.

    [bold]Examples[/bold]

      shardmill report photos --open

      shardmill report photos@2 --out photos-2.html
    """
    from flows.commands import output
    from flows.parameters import root_or_default
    from infra.catalog import Catalog
    from infra.output_file import writes

    catalog = Catalog(root_or_default(root))
    opened = _with_page(catalog, catalog.open(dataset))
    path, rebuilt = _page(opened, rebuild)
    local = opened.storage.local_path(path)
    place = str(local) if local is not None else f"{opened.storage.uri}/{path}"
    if out is not None:
        page = opened.storage.read_bytes(path)
        with writes(out):
            out.write_bytes(page)
        local, place = out.absolute(), str(out)
    if json_output:
        found = {"dataset": opened.name, "version": opened.version, "report": place, "rebuilt": rebuilt}
        output.print_json(found)
    else:
        output.say(place)
    if open_it:
        _open(local, place)


def _with_page(catalog: Catalog, version: DatasetVersion) -> DatasetVersion:
    """The version whose page it is: a rollback shares that of the version it brought back."""
    from flows.commands import output

    shown = version
    while shown.manifest.restores in catalog.versions(version.name):
        shown = catalog.open(f"{version.name}@{shown.manifest.restores}")
    if shown is not version:
        output.note(f"note: {version.ref} is what {shown.ref} was; its page is that one's")
    return shown


def _page(opened: DatasetVersion, rebuild: bool) -> tuple[str, bool]:
    """(the page's path in the dataset, whether it was made just now)."""
    from beam_jobs.report import report_path, write_report

    path = report_path(opened.storage, opened.manifest)
    if rebuild or not opened.storage.exists(path):
        return write_report(opened.storage, opened.manifest), True
    return path, False


def _open(local: Path | None, place: str) -> None:
    import webbrowser

    from flows.commands import output

    if local is None:
        output.note("note: a browser cannot open it where it lies; copy it here with --out FILE")
    elif not webbrowser.open(local.absolute().as_uri()):
        output.note(f"note: no browser was found; open {place} in one")
