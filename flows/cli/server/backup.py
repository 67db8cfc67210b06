"""backup, restore and reap: save the state of a platform, bring it back, and put its history in order."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardmill.flows.cli import options, output
from shardmill.flows.cli.server.planned import parse_interval
from shardmill.flows.parameters import root_or_default, runs_or_default
from shardmill.flows.server.api import ApiLost, prefect_api
from shardmill.infra.readable import readable_bytes

if TYPE_CHECKING:
    from shardmill.flows.server.backup import Backup, Places

Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        envvar="PREFECT_SERVER_DATABASE_CONNECTION_URL",
        help="Database of Prefect's history, if it is not SQLite in $SHARDMILL_HOME",
    ),
]


def backup(
    folder: Annotated[Path, typer.Argument(metavar="DEST", help="A new folder of this machine")],
    root: options.Root = None,
    runs: options.Runs = None,
    database: Database = None,
    with_shards: Annotated[bool, typer.Option("--with-shards", help="Copy the shards too")] = False,
    json_output: options.Json = False,
) -> None:
    """Back up the catalog, the aliases and Prefect's history.

    Also while the platform runs. Without --with-shards the shards are not copied: their names, sizes and
    checksums are in the manifests.

    Examples:
      shardmill platform backup /backups/monday --root /data/datasets --runs /data/runs
    """
    from shardmill.flows.server.backup import back_up

    places = _places(root, runs, database)
    done = back_up(folder.absolute(), places, with_shards=with_shards)
    if json_output:
        output.print_json(done.as_json())
    else:
        _print(done, f"Backed up to {folder}")
    if not done.datasets:
        output.note(f"note: there is no dataset under {places.root}; --root names another folder")


def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What `shardmill platform backup` made")],
    root: options.Root = None,
    runs: options.Runs = None,
    database: Database = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace Prefect's history")] = False,
    json_output: options.Json = False,
) -> None:
    """Restore a backup while the platform does not run. Versions that are there already stay.

    Examples:
      shardmill platform restore /backups/monday --root /data/datasets --runs /data/runs --replace
    """
    from shardmill.flows.server.backup import restore as bring_back

    done = bring_back(folder.absolute(), _places(root, runs, database), replace=replace)
    if json_output:
        output.print_json(done.as_json())
        return
    _print(done, f"Restored {folder}")
    for name, copied in done.datasets.items():
        if copied.missing:
            files = output.counted(copied.missing, "file")
            output.note(f"note: {files} of {name} are missing, such as shards: shardmill verify {name}")


def _places(root: str | None, runs: str | None, database: str | None) -> Places:
    from shardmill.flows.server.backup import Places

    return Places(root_or_default(root), runs_or_default(runs), database or None)


def _print(done: Backup, title: str) -> None:
    output.say(f"{title}:", f"  Prefect's history: {done.database or 'none'}")
    for name, copied in done.datasets.items():
        files = output.counted(copied.num_files, "file")
        output.say(f"  {name}: {files} ({readable_bytes(copied.num_bytes)})")
    if not done.datasets:
        output.say("  no dataset")
    output.say(f"  aliases: {output.counted(done.aliases.num_files, 'record')}")


Every = Annotated[
    str | None,
    typer.Option(
        "--every", metavar="INTERVAL", help="Do it again and again, until a signal ends the command"
    ),
]


def reap(every: Every = None, json_output: options.Json = False) -> None:
    """Mark the runs of this machine whose process was killed.

    `shardmill up` does so every ten seconds. For a server of your own: run it on each machine that has a
    worker.

    Examples:
      shardmill platform reap        (PREFECT_API_URL=http://prefect:4200/api names your server)
      shardmill platform reap --every 30s
    """
    interval = None if every is None else parse_interval(every)
    if interval is not None:
        _reap_again_and_again(interval.total_seconds(), json_output)
        return
    with prefect_api():
        from shardmill.flows.server.tidying.reaper import Reaper

        done = Reaper(has_worker=False).reap()
    output.answer({"done": done}, json_output, *(done or ["Nothing to do"]))


def _reap_again_and_again(seconds: float, json_output: bool) -> None:
    """Reap until a signal ends this process; a server that does not answer is asked again."""
    with prefect_api() as api:
        from shardmill.flows.server.tidying.reaper import Reaper

        reaper = Reaper(has_worker=False)
    output.note(f"Reaping every {seconds:g} s")
    while True:
        try:
            with prefect_api(api):
                done = reaper.reap()
            if json_output and done:
                output.print_json({"done": done})
            else:
                output.say(*done)
        except ApiLost as lost:
            output.note(f"warning: {lost.message}")
        time.sleep(seconds)
