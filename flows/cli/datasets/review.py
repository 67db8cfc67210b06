"""review list, decide, export and import: what was found in a dataset, and what people decided about it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardmill.flows.cli import options, output
from shardmill.flows.cli.datasets.maintenance import Name
from shardmill.flows.cli.folders import catalog_at, runs_folder
from shardmill.infra.errors import DataError, NotFoundError, UsageError
from shardmill.infra.near_names import near_names

if TYPE_CHECKING:
    from shardmill.infra.dataset.decisions import Decision
    from shardmill.infra.dataset.version import DatasetVersion

_SHOWN = 20


def list_(
    dataset: Name,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="NAME", help="Only what was found for this reason")
    ] = None,
    decided: Annotated[bool, typer.Option("--decided", help="Instead, the decisions in force")] = False,
    most: Annotated[int, typer.Option("--most", metavar="N", min=1, help="Print at most so many")] = _SHOWN,
    root: options.Root = None,
    runs: options.Runs = None,
    json_output: options.Json = False,
) -> None:
    """List the records of the newest version that a person should look at, the most important first.

    Decided ones are left out. `shardmill up --review` shows them with their pictures.

    Examples:
      shardmill review list photos
      shardmill review list photos --reason label-error --most 100
      shardmill review list photos --decided --json
    """
    from shardmill.flows.review.findings import REASONS
    from shardmill.flows.review.queue import make_queue
    from shardmill.infra.dataset.decisions import DecisionLog

    catalog = catalog_at(root)
    version = catalog.open(dataset)
    current = DecisionLog(version.storage).read().current
    if decided:
        rows = [[row.record, row.decision, row.was, row.to, row.by, row.at] for row in current.values()]
        columns = ["record", "decision", "from", "to", "by", "at"]
        _print(f"Decided: {len(rows):,}", columns, rows[: -most - 1 : -1], json_output, dataset)
        return
    names = [each.name for each in REASONS]
    if reason is not None and reason not in names:
        raise UsageError(f"there is no reason {reason!r}", f"give one of {', '.join(names)}")
    queue = make_queue(version, runs_folder(runs))
    for problem in queue.problems:
        output.note(f"warning: {problem}")
    open_rows = [row for row in queue.rows if row.record not in current and reason in (None, *row.findings)]
    rows = [
        [
            row.record,
            row.label,
            row.suggested,
            "; ".join(each.text for each in row.findings.values()),
            row.uri,
        ]
        for row in open_rows
    ]
    counts = queue.counts(current)
    said = ", ".join(f"{counts[each.name]:,} {each.words}" for each in REASONS if counts[each.name])
    title = f"To review in {version.ref}: {len(rows):,}" + (f" ({said})" if said else "")
    _print(title, ["record", "label", "suggested", "why", "source"], rows[:most], json_output, version.ref)


def _print(title: str, columns: list[str], rows: list[list[str]], json_output: bool, subject: str) -> None:
    if json_output:
        found = [dict(zip(columns, row, strict=True)) for row in rows]
        output.print_json({"dataset": subject, "rows": found})
    elif rows:
        output.print_table(title, columns, rows)
    else:
        output.say(title)


def decide(
    dataset: Name,
    record: Annotated[str, typer.Argument(metavar="RECORD", help="Its id, as `list` prints it")],
    decision: Annotated[
        str, typer.Argument(metavar="DECISION", help="keep, relabel, exclude, unsure or undo")
    ],
    to: Annotated[str, typer.Option("--to", metavar="CLASS", help="The new class of relabel")] = "",
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, in one line")] = "",
    root: options.Root = None,
    json_output: options.Json = False,
) -> None:
    """Decide about one record; undo takes its last decision back, also of a record that is excluded.

    Examples:
      shardmill review decide photos 0f3c5a7be1d24c68 exclude --reason "no clothing"
      shardmill review decide photos 0f3c5a7be1d24c68 undo
    """
    from shardmill.infra.dataset.decisions import Decision, DecisionLog
    from shardmill.training.aliases.record import this_user

    version = catalog_at(root).open(dataset)
    log = DecisionLog(version.storage)
    before = log.read().current.get(record)
    labels = _labels(version)
    is_there = before is not None or record in labels or record in _quarantined(version)
    if not is_there or (before is None and decision == "undo"):
        is_undo = decision == "undo"
        raise NotFoundError(
            f"nothing is decided about {record!r}" if is_undo else f"{version.ref} has no record {record!r}",
            f"see shardmill review list {dataset}, or with --decided",
        )
    if decision == "relabel" and version.manifest.label_kind != "class":
        raise UsageError(f"images of {version.ref} have no one class", "decide keep, exclude or unsure")
    verdict: Any = decision
    was = labels.get(record, "")
    row = Decision(secrets.token_hex(12), record, verdict, this_user(), was=was, to=to, reason=reason)
    (added,) = log.append([row]).added
    output.answer(
        {"dataset": dataset, "record": record, "key": added.key, "new_classes": _new_classes(version, [row])},
        json_output,
        f"{decision}: {record}",
    )


File = Annotated[Path, typer.Argument(metavar="FILE", help=".csv, .parquet, or .json of Label Studio")]


def export(
    dataset: Name,
    file: File,
    root: options.Root = None,
    json_output: options.Json = False,
) -> None:
    """Write all decisions about a dataset to a file.

    Examples:
      shardmill review export photos decisions.csv
      shardmill review export photos decisions.parquet
    """
    from shardmill.flows.review.exchange import KINDS, written
    from shardmill.infra.dataset.decisions import DecisionLog
    from shardmill.infra.storage.local import file_writer, writes

    if file.suffix.lower() not in KINDS:
        raise UsageError(f"{file} is no {', '.join(KINDS)}", "name a file that ends so")
    version = catalog_at(root).open(dataset)
    decisions = DecisionLog(version.storage).read()
    data = written(decisions, _sources(version), file.suffix.lower())
    with writes(file), file_writer(file) as stream:
        stream.write(data)
    found = {"dataset": dataset, "file": str(file), "num_decisions": len(decisions.rows)}
    output.answer(found, json_output, f"Wrote {output.counted(len(decisions.rows), 'decision')} to {file}")


def import_(
    dataset: Name,
    file: File,
    root: options.Root = None,
    json_output: options.Json = False,
) -> None:
    """Add the decisions of a file, as `export` writes it, or of a label-errors.csv with decisions.

    A decision that is there already is not added again. The next prepare applies them.

    Examples:
      shardmill review import photos decisions.csv
    """
    from shardmill.flows.review.exchange import read
    from shardmill.infra.dataset.decisions import DecisionLog
    from shardmill.training.aliases.record import this_user

    version = catalog_at(root).open(dataset)
    records = {uri: record for record, uri in _sources(version).items()}
    log = DecisionLog(version.storage)
    found = read(file, this_user(), records.get, log.read(), dataset)
    relabelled = sum(row.decision == "relabel" for row in found.decisions)
    if relabelled and version.manifest.label_kind != "class":
        raise DataError(
            f"{file} relabels {output.counted(relabelled, 'record')}, and those of {version.ref} have no one "
            "class",
            "correct such labels in the source; keep, exclude and unsure are for every kind",
        )
    appended = log.append(found.decisions)
    numbers = {
        "num_added": len(appended.added),
        "num_there_before": len(appended.repeated),
        "num_undecided": found.num_undecided,
        "num_elsewhere": found.num_elsewhere,
    }
    elsewhere = f", {found.num_elsewhere:,} are of other data sets" if found.num_elsewhere else ""
    output.answer(
        {"dataset": dataset, **numbers, "new_classes": _new_classes(version, found.decisions)},
        json_output,
        f"Added {output.counted(len(appended.added), 'decision')}; {len(appended.repeated):,} were there "
        f"before, {found.num_undecided:,} rows are undecided{elsewhere}",
        f"Apply them: shardmill prepare SOURCE --dataset {dataset}",
    )


def _new_classes(version: DatasetVersion, decisions: Sequence[Decision]) -> list[str]:
    """Return the new classes of decisions that a version does not have, and warn of them."""
    known = version.manifest.classes
    new = sorted({row.to for row in decisions if row.to} - set(known))
    for name in new[:_SHOWN]:
        near = near_names(name, known)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        output.note(f"warning: {name!r} is a new class of {version.name}{meant}")
    if len(new) > _SHOWN:
        output.note(f"warning: {len(new) - _SHOWN:,} more new classes")
    return new


def _quarantined(version: DatasetVersion) -> dict[str, str]:
    """Return the id of each content in quarantine -> URI of its source."""
    from shardmill.flows.review.findings import quarantined

    return {row["sha256"][:16]: row["uri"] for row in quarantined(version)}


def _labels(version: DatasetVersion) -> dict[str, str]:
    """Return record id -> name of its class; "" without one."""
    rows, names = version.scan(["id", "label"]).to_table(), version.manifest.classes
    known = [
        names[label] if label is not None and 0 <= label < len(names) else ""
        for label in rows["label"].to_pylist()
    ]
    return dict(zip(rows["id"].to_pylist(), known, strict=True))


def _sources(version: DatasetVersion) -> dict[str, str]:
    """Return record id -> URI of its source, also of contents in quarantine."""
    rows = version.scan(["id", "source_uri"]).to_table()
    return _quarantined(version) | dict(
        zip(rows["id"].to_pylist(), rows["source_uri"].to_pylist(), strict=True)
    )
