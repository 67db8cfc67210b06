"""datasets, show and locate: list and describe published versions, and find records in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardmill.flows.cli import options, output
from shardmill.flows.cli.folders import catalog_at, run_named, warn_of_unfinished_purge
from shardmill.flows.flow_runs.jobs import train_settings
from shardmill.flows.parameters import root_or_default
from shardmill.infra.errors import ShardmillError, UsageError
from shardmill.infra.processes.children import result_of
from shardmill.infra.processes.job_command import config_arguments, python_module
from shardmill.infra.readable import readable_bytes
from shardmill.infra.storage.locations import absolute_path

if TYPE_CHECKING:
    from shardmill.infra.dataset.catalog import Catalog


def datasets(root: options.Root = None, json_output: options.Json = False) -> None:
    """List the datasets that have a published version.

    Examples:
      shardmill datasets
      shardmill datasets --root /data/datasets --json
    """
    catalog = catalog_at(root)
    found: list[dict[str, Any]] = []
    unreadable: dict[str, str] = {}
    for name in catalog.datasets():
        try:
            found.append(_summary(catalog, name))
        except ShardmillError as error:
            unreadable[name] = str(error)
    for name, why in unreadable.items():
        output.note(f"note: {name} cannot be read: {why}")
    if json_output:
        output.print_json({"root": catalog.storage.uri, "datasets": found, "unreadable": unreadable})
    elif not found and not unreadable:
        output.say(
            f"No datasets under {catalog.storage.uri}", "Make one: shardmill prepare SOURCE --dataset NAME"
        )
    elif found:
        columns = ["dataset", "version", "records", "classes", "splits", "shards", "size", "published"]
        rows = [
            [
                *(entry[key] for key in ("dataset", "version", "num_records", "num_classes")),
                " ".join(entry["splits"]),
                entry["num_shards"],
                readable_bytes(entry["num_bytes"]),
                entry["created_at"],
            ]
            for entry in found
        ]
        output.print_table("", columns, rows)


AsCroissant = Annotated[
    bool, typer.Option("--croissant", help="Print the version as MLCommons Croissant (JSON-LD)")
]
Augmented = Annotated[
    bool,
    typer.Option(
        "--augmented",
        help="Instead, write the picture --out: some training examples as stored, and as training sees them",
    ),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE.png", help="The picture of --augmented")]
Parser = Annotated[
    bool,
    typer.Option("--parser", help="Instead, print Python code that parses the records with TensorFlow"),
]


def show(
    subject: options.ShownSubject,
    root: options.Root = None,
    runs: options.Runs = None,
    augmented: Augmented = False,
    out: Out = None,
    parser: Parser = False,
    croissant: AsCroissant = False,
    config: options.Config = None,
    overrides: options.Overrides = None,
    json_output: options.Json = False,
) -> None:
    """Show a version of a dataset, a view of it, or a training run.

    Of a version: splits, shards, class balance, accounting, quarantine. Of a view, NAME@VERSION?QUERY: the
    records that the query selects. Of a run: its model and figures, and how evenly its ranks work.

    Examples:
      shardmill show photos
      shardmill show photos@2 --json
      shardmill show "photos@2?label == 'cat' and width > 800"
      shardmill show photos@2 --croissant > croissant.json
      shardmill show photos --augmented --out augmented.png --set augment.mixup=0.2
      shardmill show photos --parser
      shardmill show photos-v1-3f2a
    """
    run = None if "?" in subject else run_named(subject, runs, root)
    if run is not None:
        if augmented or parser or croissant:
            raise UsageError(f"{run.name} is a training run", "these options are for datasets")
        from shardmill.flows.cli.runs.looking import show_run

        show_run(run, json_output)
        return
    opened = catalog_at(root).open_view(subject)
    if opened.is_joined and (parser or croissant):
        raise UsageError(f"{opened.ref} are several data sets", "show each by itself")
    if parser:
        from shardmill.infra.format.examples import parser_code

        output.say(*parser_code(opened.manifest).splitlines())
        return
    if augmented:
        if out is None:
            raise UsageError("--augmented writes a picture", "name its file: --out FILE.png")
        _write_augmented(opened.ref, root, out, config, overrides or [], json_output)
        return
    if config is not None or overrides or out is not None:
        raise UsageError(
            "--config, --set and --out go with --augmented",
            "add --augmented --out FILE.png, or leave them out",
        )
    if croissant:
        from shardmill.flows.cli.datasets.print_version import print_croissant

        print_croissant(opened)
        return
    from shardmill.flows.cli.datasets.print_version import describe, print_version, print_view

    if opened.view is not None or opened.is_joined:
        described = describe(opened)
        output.print_json(described) if json_output else print_view(opened, described)
    elif json_output:
        output.print_json(
            opened.manifest.model_dump(mode="json")
            | {"versions": catalog_at(root).versions(opened.name), "location": opened.storage.uri}
        )
    else:
        print_version(opened)
    warn_of_unfinished_purge(opened)


Source = Annotated[
    str | None, typer.Option("--source", metavar="URI", help="An input: relative to the source, or its path")
]
Record = Annotated[str | None, typer.Option("--record", metavar="ID", help="A record id")]


def locate(
    dataset: options.Ref,
    source: Source = None,
    record: Record = None,
    root: options.Root = None,
    json_output: options.Json = False,
) -> None:
    """Find the outcome of an input, or the inputs of a record.

    What the newest version does not have is looked up in earlier versions, newest first.

    Examples:
      shardmill locate photos --source cat/0001.jpg
      shardmill locate photos --record 0f3c5a7be1d24c68
    """
    from shardmill.infra.dataset.locate import locate_anywhere

    if source is not None and "://" not in source and Path(source).exists():
        source = absolute_path(source)
    found = locate_anywhere(catalog_at(root), dataset, source=source, record=record)
    name, version = found.version.name, found.version.version
    if json_output:
        output.print_json(
            {"dataset": name, "version": version, "versions": found.versions, "matches": found.matches}
        )
        return
    if found.newest not in found.versions:
        output.note(f"note: {name}@{found.newest} has it no more; {name}@{version} was the last that had it")
    for entry in found.matches:
        rows = [[key, value] for key, value in entry.items() if value is not None]
        versions = ", ".join(f"{name}@{number}" for number in found.versions)
        output.print_table(str(entry["uri"]), ["", ""], [*rows, ["in versions", versions]])


def _summary(catalog: Catalog, name: str) -> dict[str, Any]:
    manifest = catalog.open(name).manifest
    return {
        "dataset": name,
        "version": manifest.version,
        "versions": catalog.versions(name),
        "num_records": manifest.accounting.num_records,
        "num_classes": len(manifest.classes),
        "splits": {split: summary.num_examples for split, summary in manifest.splits.items()},
        "num_shards": len(manifest.shards),
        "num_bytes": sum(shard.num_bytes for shard in manifest.shards),
        "created_at": manifest.created_at,
        "source": manifest.source,
    }


def _write_augmented(
    ref: str, root: str | None, out: Path, config: Path | None, overrides: list[str], json_output: bool
) -> None:
    """Write the picture of augmented examples and print its path."""
    # In a process of its own: it reads as training does, and may need TensorFlow.
    command = python_module("shardmill.training.show_augmented", ref, "--root", root_or_default(root))
    command += ["--out", str(out), *config_arguments(train_settings(config, overrides).model_dump_json())]
    result = result_of(command)
    examples = output.counted(result["num_examples"], "training example")
    epochs = output.counted(result["num_epochs"], "epoch")
    output.answer(result, json_output, f"Wrote {out}: {examples} of {ref}, as stored and in {epochs}")
