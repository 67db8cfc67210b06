"""Show a published version on the page of its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmill.flows.flow_runs.showing import markdown
from shardmill.flows.flow_runs.showing.examples import lost_text
from shardmill.flows.flow_runs.showing.headline import headline
from shardmill.flows.flow_runs.showing.markdown import escaped, picture, svg_uri, table
from shardmill.flows.flow_runs.showing.page import Keys, RunPage
from shardmill.infra.dataset.views.references import reference_of
from shardmill.infra.html import charts

Result = Mapping[str, Any]
Row = dict[str, Any]


def show_prepared(page: RunPage, keys: Keys, result: Result, shards: Sequence[Row], lost: Result) -> None:
    """Make the artifacts of a published version.

    Args:
        page: the page of the run, which gets the artifacts.
        keys: keys of the artifacts of the run.
        result: the result of the prepare job.
        shards: the rows of ``shard_rows``.
        lost: the event of inputs that cannot be used, with their pictures; empty: there are none.
    """
    ref = reference_of(result)
    page.markdown(
        keys.key("summary"), "\n\n".join(summary(result, shards)), f"**{escaped(headline(result))}**"
    )
    page.table(keys.key("splits-and-shards"), shards, f"Splits and shards of {escaped(ref)}")
    outcomes = f"Outcomes of the {result['num_inputs']:,} inputs of {escaped(ref)}"
    page.table(keys.key("accounting"), _accounting_rows(result), outcomes)
    page.markdown(keys.key("class-balance"), _balance_text(result), balance_picture(result))
    if lost:
        page.markdown(keys.key("quarantine"), lost_text(lost), _quarantine_line(lost))


def summary(result: Result, shards: Sequence[Row]) -> list[str]:
    """Return the parts of a page about a version: addresses, accounting and shards."""
    ref, name, version = reference_of(result), str(result["dataset"]), int(result["version"])
    parts = [f"## {escaped(ref)}", escaped(headline(result))]
    links = []
    if result.get("report"):
        report = markdown.dataset_report(name, version)
        links.append(markdown.line("Report", report, result["report"], f"shardmill report {ref} --open"))
    if result.get("manifest"):
        manifest = markdown.dataset_page(name, version)
        links.append(markdown.line("Version", manifest, result["manifest"], f"shardmill show {ref}"))
    parts.append("\n".join(links))
    parts.append(table(_accounting_rows(result)))
    if shards:
        parts.append(table(shards))
    return [part for part in parts if part]


def balance_picture(result: Result) -> str:
    """Return the picture of the classes of a version, as Markdown."""
    balance = {split: summary["class_counts"] for split, summary in result["splits"].items()}
    title = f"Class balance of {reference_of(result)}"
    return picture(title, svg_uri(charts.stacked_bars(title, balance)))


def _balance_text(result: Result) -> str:
    """Return the classes of a version as a table, the largest first."""
    splits = result["splits"]
    names = {name for summary in splits.values() for name in summary["class_counts"]}
    rows: list[Row] = [
        {"class": name, **{split: summary["class_counts"].get(name, 0) for split, summary in splits.items()}}
        for name in names
    ]
    rows.sort(key=lambda row: (-sum(row[split] for split in splits), row["class"]))
    return table(rows[:_CLASSES]) + (f"\n\nand {len(rows) - _CLASSES:,} more" if len(rows) > _CLASSES else "")


_CLASSES = 200  # in a table


def _quarantine_line(lost: Result) -> str:
    """Return in one line how many inputs cannot be used, and why."""
    reasons = sorted(lost["reasons"].items(), key=lambda reason: (-reason[1], reason[0]))
    why = ", ".join(f"{escaped(reason)} ({count:,})" for reason, count in reasons[:5])
    return f"{sum(lost['reasons'].values()):,} inputs cannot be used: {why}"


def _accounting_rows(result: Result) -> list[Row]:
    """Return a row for each outcome of the inputs, and one for their sum."""
    names = {
        "records": "num_records",
        "duplicates": "num_duplicates",
        "filtered": "num_filtered",
        "quarantined": "num_quarantined",
        "all inputs": "num_inputs",
    }
    return [{"outcome": name, "inputs": result[key]} for name, key in names.items()]


def shard_rows(shards_by_split: Mapping[str, Sequence[Any]]) -> list[Row]:
    """Return a row for each split, with its number of shards and how even they are.

    Args:
        shards_by_split: {split: [shardmill.infra.format.contract.Shard, ...]}.
    """
    rows = []
    for split, shards in shards_by_split.items():
        examples = [shard.num_examples for shard in shards]
        rows.append(
            {
                "split": split,
                "examples": sum(examples),
                "shards": len(shards),
                "smallest shard": min(examples, default=0),
                "largest shard": max(examples, default=0),
                "bytes": sum(shard.num_bytes for shard in shards),
            }
        )
    return rows
