"""Publish the artifacts of an evaluation and of a decision about an alias.

Keys are ``<dataset>-evaluation`` and ``<dataset>-<alias>-<subject>``: ``verdict``, ``comparison`` and
``intervals``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmill.flows.flow_runs.artifacts.page import Keys, RunPage
from shardmill.flows.flow_runs.artifacts.trained import Row, figure_rows
from shardmill.flows.flow_runs.showing.markdown import escaped, picture, svg_uri, table
from shardmill.infra.dataset.views.references import reference_of
from shardmill.infra.html import charts
from shardmill.training.metrics.figures import FIGURES, is_smaller_better

Result = Mapping[str, Any]


def publish_evaluated(result: Result) -> None:
    """Make the artifact of an evaluation: a table of its figures."""
    split, ref = result["split"], reference_of(result)
    description = f"{result['run']} on {ref}, {split}: {result['metrics']['num_examples']:,} examples"
    rows = figure_rows({"metrics": {split: result["metrics"]}})
    key = Keys(str(result["dataset"])).key("evaluation")
    RunPage.of_this_run().table(key, rows, escaped(description))


def evaluated_in_words(result: Result) -> str:
    """The outcome of an evaluation."""
    return f"evaluated {result['run']} on {reference_of(result)}, {result['split']}"


def publish_verdict(result: Result) -> None:
    """Make the artifacts of a decision about an alias.

    Args:
        result: The result of the promote job.
    """
    page, record = RunPage.of_this_run(), result["record"]
    keys = Keys(f"{record['dataset']}-{record['alias']}")
    decision = f"{result['alias']}: {decision_in_words(result)}"
    page.markdown(keys.key("verdict"), verdict_text(result), escaped(decision))
    comparison = record["comparison"]
    if comparison is None:
        return
    description = f"{record['predecessor']} and {record['run']} on the same test records"
    rows = comparison_rows(comparison)
    page.table(keys.key("comparison"), rows, escaped(description))
    title = f"Candidate less present model, {comparison['rules']['confidence']:.0%} intervals"
    svg = charts.intervals(title, intervals_of(comparison), "present model better", "candidate better")
    page.markdown(keys.key("intervals"), table(rows), picture(title, svg_uri(svg)))


def decision_in_words(result: Result) -> str:
    """The decision, in a few words."""
    record = result["record"]
    if result["moved"]:
        return f"moved to {record['run']}"
    if record["action"] == "kept":
        return f"stays {result['holder'] or 'without a run'}; {record['run']} does not get it"
    return f"is {record['run']} already"


def verdict_text(result: Result) -> str:
    """The decision as Markdown, with the origin of the run."""
    record = result["record"]
    lines = [
        f"## {result['alias']} {decision_in_words(result)}",
        "",
        f"{_sentence(record['verdict'])}",
        "",
        "| | |",
        "|---|---|",
        f"| candidate | `{record['run']}`, trained on `{record['trained_on']}` |",
        f"| before | {_code(record['predecessor'])} |",
        f"| decided | {record['at']} by {record['by']} |",
    ]
    if record["reason"]:
        lines.append(f"| reason | {_code(' '.join(str(record['reason']).split()))} |")
    dataset = record["dataset"]
    lines += ["", f"Its history: `shardmill model aliases {dataset}`"]
    lines += ["", f"Back to the run before: `shardmill model rollback {result['alias']}`"]
    return "\n".join(lines)


def comparison_rows(comparison: Mapping[str, Any]) -> list[Row]:
    """A row for each figure of both models, the deciding one first."""
    return [
        {
            "figure": f"{name} (decides)" if name == comparison["metric"] else name,
            "present model": round(of_figure["first"], 4),
            "candidate": round(of_figure["second"], 4),
            "difference": round(of_figure["second"] - of_figure["first"], 4),
            "from": round(of_figure["low"], 4),
            "to": round(of_figure["high"], 4),
        }
        for name, of_figure in _deciding_first(comparison)
    ]


def intervals_of(comparison: Mapping[str, Any]) -> dict[str, tuple[float, float, float]]:
    """{figure: (low, difference, high)}, with greater values for a better candidate."""
    found = {}
    for name, of_figure in _deciding_first(comparison):
        values = of_figure["low"], of_figure["second"] - of_figure["first"], of_figure["high"]
        low, value, high = (-each for each in reversed(values)) if is_smaller_better(name) else values
        found[FIGURES[name].words] = (low, value, high)
    return found


def _deciding_first(comparison: Mapping[str, Any]) -> list[tuple[str, Mapping[str, float]]]:
    figures = comparison["figures"].items()
    return sorted(figures, key=lambda item: item[0] != comparison["metric"])


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _code(text: str | None) -> str:
    """The text as code, so that nothing in it is markup; a bar would end a cell of the table."""
    return "no run" if text is None else f"`{text.replace('`', chr(39)).replace('|', '/')}`"
