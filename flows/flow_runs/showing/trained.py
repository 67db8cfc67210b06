"""Show a finished training, an evaluation, and a decision about an alias on the pages of their runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shardmill.flows.flow_runs.showing import markdown, training_curve
from shardmill.flows.flow_runs.showing.examples import hardest_text, read_examples
from shardmill.flows.flow_runs.showing.headline import headline
from shardmill.flows.flow_runs.showing.markdown import code, escaped, picture, svg_uri, table
from shardmill.flows.flow_runs.showing.page import Keys, RunPage
from shardmill.infra.dataset.views.references import reference_of
from shardmill.infra.html import charts
from shardmill.training.metrics.figures import FIGURES, is_smaller_better

Result = Mapping[str, Any]
Row = dict[str, Any]

_MATRIX_BYTES = 400_000  # largest picture that a page shows
_OF_RUN = (
    "epochs",
    "steps",
    "global_batch_size",
    "num_replicas",
    "images_per_second",
    "input_wait_fraction",
)


def show_trained(page: RunPage, keys: Keys, result: Result) -> None:
    """Make the artifacts of a finished training; its curve is there already (flow_runs.showing.live)."""
    parts = [*summary(result), *hardest_text(read_examples(Path(result["run_dir"])))]
    page.markdown(keys.key("summary"), "\n\n".join(parts), f"**{escaped(headline(result))}**")
    ref = escaped(reference_of(result))
    page.table(keys.key("final-figures"), _figure_rows(result), f"Figures of {code(result['run_dir'])}")
    if per_class := _per_class_rows(result):
        page.table(keys.key("per-class"), per_class, f"Figures by class on {ref}")
    if balance := result.get("rank_balance"):
        warnings = "".join(f" Warning: {escaped(text)}." for text in balance["warnings"])
        page.table(
            keys.key("rank-balance"),
            balance["ranks"],
            f"What each rank did in epoch {balance['epoch']}.{warnings}",
        )
    for split, matrix in confusion_pictures(result):
        page.markdown(keys.key(f"confusion-{split}"), _confusion_text(result, split), matrix)


def summary(result: Result) -> list[str]:
    """Return the parts of a page about a training: addresses, figures, notes and the curve."""
    ref, run_dir = reference_of(result), str(result["run_dir"])
    run = Path(run_dir).name
    parts = [f"## {escaped(str(result['model']))} on {escaped(ref)}", escaped(headline(result))]
    links = [
        markdown.line(
            "Report", markdown.run_report(run), result.get("report", run_dir), f"shardmill report {run}"
        ),
        markdown.line(
            "TensorBoard", markdown.tensorboard(), f"{run_dir}/logs", f"tensorboard --logdir {run_dir}"
        ),
        markdown.line("Run", markdown.run_page(run), run_dir, f"ls {run_dir}"),
    ]
    if result.get("export_dir"):
        links.append(f"- Exported model: {code(str(result['export_dir']))}")
    parts += ["\n".join(links), table(_split_rows(result))]
    parts += [f"Note: {escaped(note)}" for note in result.get("notes", [])]
    points = training_curve.points_of(Path(run_dir))
    if points:
        title = f"Training on {ref}"
        parts.append(picture(title, svg_uri(training_curve.quality_svg(title, points))))
    return [part for part in parts if part]


def confusion_pictures(result: Result) -> Iterator[tuple[str, str]]:
    """Yield (split, picture as Markdown) of the confusion matrices that are small enough to show."""
    for split, path in result.get("confusion_pictures", {}).items():
        try:
            svg = Path(path).read_text(encoding="utf-8")
        except OSError:  # removed since
            continue
        if len(svg) <= _MATRIX_BYTES:
            yield split, picture(f"Confusion matrix of {split}", svg_uri(svg))


def _confusion_text(result: Result, split: str) -> str:
    rows = [row for row in _per_class_rows(result) if row["split"] == split]
    return table([{name: value for name, value in row.items() if name != "split"} for row in rows])


def _split_rows(result: Result) -> list[Row]:
    """Return a row for each figure, with a column for each split."""
    metrics = result["metrics"]
    names = [
        name for name in FIGURES if any(isinstance(of.get(name), int | float) for of in metrics.values())
    ]
    return [
        {
            "figure": FIGURES[name].words,
            **{split: FIGURES[name].exact(of[name]) if name in of else None for split, of in metrics.items()},
        }
        for name in names
    ]


def _figure_rows(result: Result) -> list[Row]:
    """Return the figures of a training that are single numbers, a row for each."""
    rows = [
        {"split": split, "figure": figure, "value": value}
        for split, figures in result["metrics"].items()
        for figure, value in figures.items()
        if isinstance(value, int | float)
    ]
    rows += [{"split": "", "figure": name, "value": result[name]} for name in _OF_RUN if name in result]
    return rows


def _per_class_rows(result: Result) -> list[Row]:
    """Return a row for each split and class, or target of a regression, with its figures."""
    return [
        {"split": split, kind: label, **(figures if isinstance(figures, Mapping) else {"value": figures})}
        for split, of_split in result["metrics"].items()
        for kind, rows in (("class", of_split.get("per_class")), ("target", of_split.get("per_target")))
        for label, figures in (rows or {}).items()
    ]


def publish_evaluated(result: Result) -> None:
    """Make the artifact of an evaluation: a table of its figures."""
    split, ref = result["split"], reference_of(result)
    description = f"{result['run']} on {ref}, {split}: {result['metrics']['num_examples']:,} examples"
    rows = _figure_rows({"metrics": {split: result["metrics"]}})
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
        f"{record['verdict'][:1].upper()}{record['verdict'][1:]}.",
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


def _code(text: str | None) -> str:
    """The text as code, so that nothing in it is markup; a bar would end a cell of the table."""
    return "no run" if text is None else f"`{text.replace('`', chr(39)).replace('|', '/')}`"
