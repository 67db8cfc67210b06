"""export: write a version in a form that other libraries read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli import options
from flows.cli.datasets.open_catalog import catalog_at
from infra.readable import readable_bytes

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to make; it must not exist yet")]
Copy = Annotated[bool, typer.Option("--copy", help="Copy the shards, even where links would do")]


def export(
    dataset: options.Ref,
    folder: Folder,
    copy: Copy = False,
    root: options.Root = None,
    json_output: options.Json = False,
) -> None:
    """Write a folder that other libraries read: plain TFRecords, .idx files, TensorFlow Datasets' metadata.

    Uncompressed shards on this machine become links; others are written. The version is not changed.

    [bold]Examples[/bold]

      shardmill export photos@2 photos-for-dali

      shardmill export photos /mnt/usb/photos --copy
    """
    from flows.cli import output
    from infra import progress
    from infra.dataset.exports import folder as exporting

    opened = catalog_at(root).open(dataset)
    with progress.shown_to_people():
        progress.stage("export", opened.manifest.accounting.num_records, unit="records")
        made = exporting.export(
            opened,
            folder.expanduser().absolute(),
            copy=copy,
            on_progress=lambda done, total: progress.progress("export", done, total, unit="records"),
        )
    if json_output:
        output.print_json(
            {
                "dataset": opened.name,
                "version": opened.version,
                "folder": str(made.folder),
                "num_shards": made.num_shards,
                "num_records": made.num_records,
                "num_bytes": made.num_bytes,
                "linked": made.linked,
            }
        )
        return
    what = "links to its shards" if made.linked else f"{readable_bytes(made.num_bytes)} written"
    output.say(
        f"Made {folder} of {opened.ref}: {output.counted(made.num_records, 'record')} in "
        f"{output.counted(made.num_shards, 'shard')}, {what}"
    )
    if made.linked:
        output.say(f"The links need the files of {opened.ref}: use --copy for a folder of its own.")
