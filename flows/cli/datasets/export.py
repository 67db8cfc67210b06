"""export: write a version in a form that other libraries read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shardmill.flows.cli import options, output
from shardmill.flows.cli.folders import catalog_at
from shardmill.infra import progress
from shardmill.infra.dataset.exports import FORMATS
from shardmill.infra.readable import readable_bytes

Destination = Annotated[
    str, typer.Argument(metavar="DEST", help="The folder to make, or a place in an object store")
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help=f"One of: {', '.join(FORMATS)}; or a plugin",
    ),
]
Copy = Annotated[bool, typer.Option("--copy", help="Copy the shards, even where links would do")]


def export(
    dataset: options.ViewRef,
    destination: Destination,
    format_name: Format = "tfds",
    copy: Copy = False,
    root: options.Root = None,
    json_output: options.Json = False,
) -> None:
    """Write a version, or a view of it, in the form of another library.

    An export that is interrupted continues when the same command runs again. The default format, tfds, is
    plain TFRecords with .idx files and the metadata of TensorFlow Datasets; uncompressed shards on this
    machine become links.

    Examples:
      shardmill export photos@2 photos-for-dali
      shardmill export photos /mnt/usb/photos --copy
      shardmill export photos@2 s3://bucket/photos-tar --format webdataset
      shardmill export "photos@2?label in ('cat', 'dog')" pets --format folder
    """
    from shardmill.infra.dataset.exports import export as exporting
    from shardmill.infra.whole_job import shown_to_people

    opened = catalog_at(root).open_view(dataset)
    place = destination if "://" in destination else str(Path(destination).expanduser().absolute())
    with shown_to_people():
        progress.stage("export", None, unit="records")
        made = exporting.export(
            opened,
            place,
            format_name,
            copy=copy,
            on_progress=lambda done, total: progress.progress("export", done, total, unit="records"),
        )
    if json_output:
        output.print_json(
            made.summary
            | {
                "folder": place,
                "num_shards": made.num_shards,
                "num_records": made.num_records,
                "num_bytes": made.num_bytes,
                "linked": made.linked,
                "unchanged": made.unchanged,
            }
        )
        return
    counts = f"{output.counted(made.num_records, 'record')} in {output.counted(made.num_shards, 'shard')}"
    if made.unchanged:
        output.say(f"{destination} has this export of {opened.ref} already: {counts}")
        return
    what = "links to its shards" if made.linked else f"{readable_bytes(made.num_bytes)} written"
    output.say(f"Made {destination} of {opened.ref}: {counts}, {what}")
    if made.linked:
        output.say(f"The links need the files of {opened.ref}: use --copy for a folder of its own.")
