"""push: write a version to the Hugging Face Hub."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from shardmill.flows.cli import options, output
from shardmill.flows.cli.folders import catalog_at
from shardmill.infra import progress
from shardmill.infra.dataset.exports import FORMATS
from shardmill.infra.readable import readable_bytes

_SHOWN = 10

Destination = Annotated[
    str, typer.Argument(metavar="DEST", help="The repository: hf://datasets/OWNER/NAME, also with @BRANCH")
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help=f"One of: {', '.join(FORMATS)}; a plugin; or shards, which Shardmill reads in place",
    ),
]
License = Annotated[
    str | None,
    typer.Option("--license", metavar="ID", help="Licence for the dataset card, such as cc-by-4.0"),
]
Public = Annotated[bool, typer.Option("--public", help="Make a new repository public [default: private]")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be committed, and change nothing on the Hub")
]


def push(
    dataset: options.ViewRef,
    destination: Destination,
    format_name: Format = "huggingface",
    license_id: License = None,
    public: Public = False,
    dry_run: DryRun = False,
    root: options.Root = None,
    json_output: options.Json = False,
) -> None:
    """Push a version, or a view of it, to the Hugging Face Hub.

    All of it is one commit. The token comes from HF_TOKEN or `hf auth login`. What the Hub has already is not
    uploaded again, so a push that was interrupted continues when the same command runs again.

    Examples:
      shardmill push photos@2 hf://datasets/me/photos --license cc-by-4.0
      shardmill push "photos?label in ('cat', 'dog')" hf://datasets/me/pets --public
      shardmill push photos hf://datasets/me/photos-shards --format shards --dry-run
    """
    from shardmill.infra.dataset.exports import push as pushing
    from shardmill.infra.whole_job import shown_to_people

    opened = catalog_at(root).open_view(dataset)
    with shown_to_people():
        progress.stage("push", None, unit="bytes")
        made = pushing.push(
            opened,
            destination,
            format_name,
            license_id=license_id,
            public=public,
            dry_run=dry_run,
            on_progress=lambda done, total: progress.progress("push", done, total, unit="bytes"),
        )
    if json_output:
        output.print_json(asdict(made) | {"dataset": opened.ref, "format": format_name, "dry_run": dry_run})
        return
    if not made.added and not made.deleted:
        output.say(f"{made.place} has {opened.ref} already: {output.counted(made.num_unchanged, 'file')}")
        return
    size = readable_bytes(sum(made.added.values()))
    rest = f"{made.num_unchanged} unchanged, {len(made.deleted)} deleted"
    did = "Would push" if dry_run else "Pushed"
    new = " (a new repository)" if made.is_new else ""
    files = output.counted(len(made.added), "file")
    output.say(f"{did} {opened.ref} to {made.place}{new}: {files}, {size}; {rest}")
    if dry_run:
        for path, num_bytes in list(made.added.items())[:_SHOWN]:
            output.say(f"  {path}  {readable_bytes(num_bytes)}")
        if len(made.added) > _SHOWN:
            output.say(f"  and {len(made.added) - _SHOWN} more")
    else:
        output.say(f"Commit {made.commit}")
