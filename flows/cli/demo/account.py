"""Print the account at the end of the demo: inputs, records, model, and where to find them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shardmill.beam_jobs.reasons import explain
from shardmill.beam_jobs.report.figures.inputs import ClassRow, count_by_class, reason_rows
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.contract import DUPLICATE, FILTERED, QUARANTINED, SPLITS

BAR_WIDTH = 18
CLASSES_SHOWN = 30
FILES_SHOWN = 3
SHORT = {"validation": "val."}
SPLIT_COLOURS = {"train": "green", "validation": "yellow", "test": "magenta"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished demo.

    Attributes:
        trained: The ``--json`` object of ``shardmill train``.
        platform: SHARDMILL_HOME of the platform that ran it.
        commands: Prefix of the ``shardmill`` and ``tensorboard`` commands ("" or a folder).
    """

    version: DatasetVersion
    trained: Mapping[str, Any]
    root: Path
    runs: Path
    platform: Path
    commands: str

    def accuracy(self, split: str) -> float:
        """Accuracy on a split; 0 if it was not evaluated."""
        return float(self.trained["metrics"].get(split, {}).get("accuracy", 0.0))

    def class_accuracy(self, name: str) -> float | None:
        """Accuracy on a class of the test split; None if it was not evaluated."""
        found = self.trained["metrics"].get("test", {}).get("per_class", {}).get(name)
        if isinstance(found, Mapping):
            found = found.get("recall", found.get("accuracy"))
        return None if found is None else float(found)


def print_account(console: Console, outcome: Outcome) -> None:
    """Print the whole account."""
    console.print()
    console.rule(f"[bold]{outcome.version.ref}[/]", align="left", style="dim")
    _print_inputs(console, outcome.version)
    _print_quarantine(console, outcome.version)
    _print_classes(console, outcome)
    _print_splits(console, outcome)
    _print_training(console, outcome)
    _print_where(console, outcome)


def _table(title: str) -> Table:
    return Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        title=title,
        title_justify="left",
        title_style="bold",
    )


def _print_inputs(console: Console, version: DatasetVersion) -> None:
    counts = version.manifest.accounting
    console.print(
        "\nEvery file is accounted for:"
        f"\n[bold]{counts.num_inputs:,} inputs[/] = [bold blue]{counts.num_records:,} records[/]"
        f" + {counts.num_duplicates:,} duplicates + {counts.num_filtered:,} filtered"
        f" + [red]{counts.num_quarantined:,} quarantined[/]"
    )
    usable = counts.num_inputs - counts.num_filtered
    budget = version.manifest.config.get("failure_budget")
    if counts.num_quarantined and isinstance(budget, int | float):
        console.print(
            f"[dim]{counts.num_quarantined / usable:.2%} could not be used; the failure budget of this run "
            f"allows {budget:.2%}. Above it nothing would have been published.[/]"
        )


def _print_quarantine(console: Console, version: DatasetVersion) -> None:
    inputs = version.inputs()
    table = _table("What is not in the shards, and why")
    table.add_column("files", justify="right")
    table.add_column("reason")
    table.add_column("which", overflow="fold")
    for outcome, style in ((QUARANTINED, "red"), (FILTERED, "dim")):
        for row in reason_rows(inputs, outcome):
            uris = [example.uri for example in row.examples]
            table.add_row(f"{row.count:,}", Text(explain(row.reason)[0], style), Text(_some(uris, row.count)))
    repeated = inputs.filter(pc.equal(inputs["outcome"], DUPLICATE)).sort_by("uri")
    if repeated.num_rows:
        uris = repeated["uri"].slice(0, FILES_SHOWN).to_pylist()
        table.add_row(
            f"{repeated.num_rows:,}",
            Text("Same bytes as another file", "magenta"),
            Text(_some(uris, repeated.num_rows)),
        )
    if table.row_count:
        console.print(table)
    for conflict in version.manifest.label_conflicts[:FILES_SHOWN]:
        console.print(
            Text.assemble(
                ("! ", "bold yellow"),
                "the same image under two labels: ",
                (" and ".join(conflict.uris), "yellow"),
            )
        )


def _print_classes(console: Console, outcome: Outcome) -> None:
    rows = count_by_class(outcome.version.inputs(), outcome.version.manifest)
    largest = max(row.num_inputs for row in rows)
    table = _table("Classes: before, after, and how well the model knows them")
    table.add_column("class", overflow="fold")
    table.add_column("inputs", justify="right")
    table.add_column("records", justify="right")
    splits = list(outcome.version.manifest.splits)
    for split in splits:
        table.add_column(SHORT.get(split, split), justify="right", style=SPLIT_COLOURS.get(split, ""))
    table.add_column("", min_width=BAR_WIDTH, no_wrap=True)
    table.add_column("accuracy", justify="right")
    for row in rows[:CLASSES_SHOWN]:
        accuracy = outcome.class_accuracy(row.name)
        table.add_row(
            Text(row.name),
            f"{row.num_inputs:,}",
            f"{row.num_records:,}",
            *(f"{row.splits.get(split, 0):,}" for split in splits),
            _bar(row, largest),
            "" if accuracy is None else Text(f"{accuracy:.1%}", "green" if accuracy >= 0.9 else "yellow"),
        )
    console.print(table)
    if len(rows) > CLASSES_SHOWN:
        console.print(f"[dim]and {len(rows) - CLASSES_SHOWN:,} classes more, in the report[/]")


def _bar(row: ClassRow, largest: int) -> Text:
    """A bar of a class's records by split, scaled to the largest class."""
    bar, at = Text(), 0.0
    for split in SPLITS:
        end = at + row.splits.get(split, 0) * BAR_WIDTH / max(1, largest)
        bar.append("█" * (round(end) - round(at)), SPLIT_COLOURS[split])
        at = end
    return bar


def _print_splits(console: Console, outcome: Outcome) -> None:
    version = outcome.version
    table = _table("Splits and shards")
    for name in ("split", "records", "shards", "records a shard", "size"):
        table.add_column(name, justify="left" if name == "split" else "right")
    for split, summary in version.manifest.splits.items():
        counts = [shard.num_examples for shard in version.shards(split)]
        spread = f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,} – {max(counts):,}"
        table.add_row(
            Text(split, SPLIT_COLOURS.get(split, "")),
            f"{summary.num_examples:,}",
            f"{summary.num_shards:,}",
            spread,
            f"{summary.num_bytes / 1024:,.0f} KiB",
        )
    console.print(table)


def _print_training(console: Console, outcome: Outcome) -> None:
    trained = outcome.trained
    table = _table("The model")
    for name in ("split", "accuracy", "loss"):
        table.add_column(name, justify="left" if name == "split" else "right")
    for split, metrics in trained["metrics"].items():
        table.add_row(
            Text(split, SPLIT_COLOURS.get(split, "")), f"{metrics['accuracy']:.2%}", f"{metrics['loss']:.3f}"
        )
    console.print(table)
    console.print(
        f"[dim]{trained['epochs']:,} epochs, {trained['steps']:,} steps of {trained['global_batch_size']:,} "
        f"examples at {trained['images_per_second']:,.0f} images/s; "
        f"{trained['input_wait_fraction']:.0%} of the time waiting for input.[/]"
    )


def _print_where(console: Console, outcome: Outcome) -> None:
    version, commands = outcome.version, outcome.commands
    console.print()
    console.rule("[bold]Where to look[/]", align="left", style="dim")
    places: list[tuple[str, str]] = []
    report = version.manifest.report
    local = version.storage.local_path(report) if report else None
    if local is not None:
        places.append(("The report, a page for the browser", _relative(local)))
    places += [
        (
            "The run in Prefect, and a page of everything, at the addresses that this prints",
            (
                f"SHARDMILL_HOME={_relative(outcome.platform)} "
                f"{commands}shardmill up --root {_relative(outcome.root)} --runs {_relative(outcome.runs)}"
            ),
        ),
        ("Curves in TensorBoard", f"{commands}tensorboard --logdir {_relative(outcome.runs)}"),
        ("The model (SavedModel, takes image bytes)", _relative(Path(str(outcome.trained["export_dir"])))),
        (
            "Every record checked against its checksum",
            f"{commands}shardmill verify {version.ref} --root {_relative(outcome.root)}",
        ),
        (
            "What became of one file",
            f"{commands}shardmill locate {version.ref} --root {_relative(outcome.root)} --source URI",
        ),
    ]
    for what, where in places:
        console.print(Text.assemble((f"{what}\n", "bold"), f"  {where}"), soft_wrap=True)


def _relative(path: Path) -> str:
    """The path relative to the working folder, if it is below it."""
    shown = os.path.relpath(path)
    return str(path) if shown.startswith("..") else shown


def _some(uris: list[str], count: int) -> str:
    shown = ", ".join(uris[:FILES_SHOWN])
    return shown if count <= FILES_SHOWN else f"{shown} and {count - FILES_SHOWN:,} more"
