"""export: a version as other libraries read it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.commands import options

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to make; it must not exist yet")]
Copy = Annotated[bool, typer.Option("--copy", help="Write the shards, also where links to them would do")]


def export(
    dataset: options.Ref,
    folder: Folder,
    copy: Copy = False,
    root: options.Root = None,
    json_output: options.Json = False,
) -> None:
    """Make a folder that other libraries read: plain TFRecords, .idx files, TensorFlow Datasets' metadata.

    Uncompressed shards on this machine are linked to; others are written. The version is not touched.

    [bold]Examples[/bold]

      shardmill export photos@2 photos-for-dali

      shardmill export photos /mnt/usb/photos --copy
    """
    from flows.commands import output
    from flows.parameters import root_or_default
    from infra import export as exporting
    from infra import progress
    from infra.catalog import Catalog

    opened = Catalog(root_or_default(root)).open(dataset)
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
    what = "links to its shards" if made.linked else f"{output.readable_bytes(made.num_bytes)} written"
    output.say(
        f"Made {folder} of {opened.ref}: {output.counted(made.num_records, 'record')} in "
        f"{output.counted(made.num_shards, 'shard')}, {what}"
    )
    if made.linked:
        output.say(f"Where {opened.ref} goes, so do the records: --copy writes a folder of its own.")
