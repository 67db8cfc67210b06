"""Publish the artifacts of a run to its page in Prefect: live progress, tables, pictures, links.

Keys are ``<dataset>-<subject>``, so that Prefect shows the history of each over the runs of a dataset:
``progress``, ``splits-and-shards``, ``accounting``, ``quarantine``, ``class-balance``, ``training-curve``,
``final-figures``, ``per-class``, ``rank-balance`` and ``where-to-look``.
"""

from __future__ import annotations

import contextvars
import logging
import math
import re
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from flows.flow_runs import charts
from infra.dataset.views.references import reference_of

_UPDATE_SECONDS = 2.0
_JOIN_SECONDS = 15.0
_NEWS_SECONDS = 5.0

_log = logging.getLogger(__name__)

Result = Mapping[str, Any]
Row = dict[str, Any]


def artifact_key(*parts: str) -> str:
    """A key that Prefect allows, made of ``parts``: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")


class LiveProgress:
    """The live progress artifact of the run of this context, updated at most every two seconds.

    A separate thread talks to the server, so that a slow or absent server never delays the job.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._latest: tuple[float, str, float] | None = None  # percent, text, when it was heard
        self._done = threading.Event()
        # The artifact belongs to the run that the context variables of this thread name.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._publish,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.show(100.0, "done")
        self._done.set()
        self._thread.join(timeout=_JOIN_SECONDS)

    def show(self, percent: float, text: str) -> None:
        """Show ``text`` at the next update."""
        self._latest = (min(100.0, percent), text, time.monotonic())

    def _publish(self) -> None:
        from prefect.artifacts import create_progress_artifact, update_progress_artifact

        artifact: Any = None  # its id; Prefect's stubs know that it might be awaitable, here it is not
        shown: tuple[float, str] | None = None
        while True:
            last = self._done.wait(_UPDATE_SECONDS if artifact else 0.0)
            latest = (0.0, "starting") if self._latest is None else with_age(*self._latest)
            if latest != shown:
                try:
                    if artifact is None:
                        artifact = create_progress_artifact(latest[0], key=self._key, description=latest[1])
                    else:
                        update_progress_artifact(artifact, latest[0], description=latest[1])
                    shown = latest
                except Exception as error:  # noqa: BLE001  the job must not fail because its picture cannot be shown
                    _log.warning("cannot show progress in Prefect: %s", error)
            if last:
                return


def with_age(percent: float, text: str, heard: float) -> tuple[float, str]:
    """Return (percent, text). The text has the age of old news, so a long block does not look stuck."""
    age_seconds = time.monotonic() - heard
    return percent, text if age_seconds < _NEWS_SECONDS else f"{text} ({age_seconds:.0f} s ago)"


def publish_prepared(result: Result, shards: Sequence[Row]) -> None:
    """Make the artifacts of a published version.

    Args:
        result: The result of the prepare job.
        shards: The rows of ``shard_rows``.
    """
    from prefect.artifacts import create_image_artifact, create_markdown_artifact, create_table_artifact

    name, ref = str(result["dataset"]), reference_of(result)
    create_table_artifact(
        table=list(shards),
        key=artifact_key(name, "splits-and-shards"),
        description=f"Splits and shards of {ref}",
    )
    create_table_artifact(
        table=accounting_rows(result),
        key=artifact_key(name, "accounting"),
        description=f"Outcomes of the {result['num_inputs']:,} inputs of {ref}",
    )
    if result.get("quarantine"):
        create_table_artifact(
            table=[{"reason": reason, "inputs": count} for reason, count in _largest(result["quarantine"])],
            key=artifact_key(name, "quarantine"),
            description=f"Why inputs of {ref} were quarantined",
        )
    balance = {split: summary["class_counts"] for split, summary in result["splits"].items()}
    create_image_artifact(
        image_url=charts.data_uri(charts.stacked_bars(f"Class balance of {ref}", balance)),
        key=artifact_key(name, "class-balance"),
        description=f"Examples by class and split of {ref}",
    )
    places = {"Report": result.get("report"), "Manifest": result.get("manifest")}
    create_markdown_artifact(
        markdown=places_text(f"{ref}", places, f"shardmill report {ref} --open"),
        key=artifact_key(name, "where-to-look"),
        description=f"Where to find {ref}",
    )


def publish_trained(result: Result, metrics: Sequence[Mapping[str, Any]]) -> None:
    """Make the artifacts of a finished training.

    Args:
        result: The result of the train job.
        metrics: The metrics events of the job, in order.
    """
    from prefect.artifacts import create_image_artifact, create_markdown_artifact, create_table_artifact

    name, ref = str(result["dataset"]), reference_of(result)
    for figure, series in curves(metrics).items():
        suffix = "training-curve" if figure == "loss" else f"{figure.replace('_', '-')}-curve"
        title = f"Training on {ref}: {figure}"
        create_image_artifact(
            image_url=charts.data_uri(charts.curves(title, series, "step")),
            key=artifact_key(name, suffix),
            description=title,
        )
    create_table_artifact(
        table=figure_rows(result),
        key=artifact_key(name, "final-figures"),
        description=f"Figures of {result['run_dir']}",
    )
    per_class = per_class_rows(result)
    if per_class:
        create_table_artifact(
            table=per_class, key=artifact_key(name, "per-class"), description=f"Figures by class on {ref}"
        )
    if balance := result.get("rank_balance"):
        warnings = "".join(f" Warning: {text}." for text in balance["warnings"])
        create_table_artifact(
            table=balance["ranks"],
            key=artifact_key(name, "rank-balance"),
            description=f"What each rank did in epoch {balance['epoch']} of {result['run_dir']}.{warnings}",
        )
    places = {"Run": result["run_dir"], "Exported model": result.get("export_dir")}
    create_markdown_artifact(
        markdown=places_text(
            f"The training run on {ref}", places, f"tensorboard --logdir {result['run_dir']}"
        ),
        key=artifact_key(name, "training-where-to-look"),
        description="Where to find the run and its model",
    )


def accounting_rows(result: Result) -> list[Row]:
    """A row for each outcome of the inputs, and one for their sum."""
    names = {
        "records": "num_records",
        "duplicates": "num_duplicates",
        "filtered": "num_filtered",
        "quarantined": "num_quarantined",
        "all inputs": "num_inputs",
    }
    return [{"outcome": name, "inputs": result[key]} for name, key in names.items()]


def figure_rows(result: Result) -> list[Row]:
    """The figures of a training that are single numbers, a row for each."""
    rows = [
        {"split": split, "figure": figure, "value": _readable(value)}
        for split, figures in result["metrics"].items()
        for figure, value in figures.items()
        if isinstance(value, int | float)
    ]
    for figure in (
        "epochs",
        "steps",
        "global_batch_size",
        "num_replicas",
        "images_per_second",
        "input_wait_fraction",
    ):
        if figure in result:
            rows.append({"split": "", "figure": figure, "value": _readable(result[figure])})
    return rows


def _readable(value: float) -> float:
    """A figure to four significant digits; whole numbers as they are."""
    if isinstance(value, int) or not math.isfinite(value):
        return value
    return float(f"{value:.4g}") if abs(value) < 1000 else round(value)


def per_class_rows(result: Result) -> list[Row]:
    """A row for each split and class, or target of a regression, with its figures."""
    return [
        {"split": split, kind: label, **_class_figures(figures)}
        for split, of_split in result["metrics"].items()
        for kind, rows in (("class", of_split.get("per_class")), ("target", of_split.get("per_target")))
        for label, figures in (rows or {}).items()
    ]


def _class_figures(figures: Any) -> Row:
    by_name = figures if isinstance(figures, Mapping) else {"value": figures}
    return {
        name: _readable(value) if isinstance(value, int | float) else value for name, value in by_name.items()
    }


def curves(metrics: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[charts.Point]]]:
    """{figure: its curve} of the loss and of the most important figure of the task."""
    from training.tasks.traits import TRAITS

    found = {name: curve(metrics, name) for name in ("loss", *(task.figures[0] for task in TRAITS.values()))}
    return {name: series for name, series in found.items() if series}


def curve(metrics: Sequence[Mapping[str, Any]], figure: str) -> dict[str, list[charts.Point]]:
    """{split: [(step, value), ...]} of one figure."""
    series: dict[str, list[charts.Point]] = {}
    for event in metrics:
        if isinstance(event.get(figure), int | float) and "step" in event:
            series.setdefault(str(event.get("split", "train")), []).append((event["step"], event[figure]))
    return series


def shard_rows(shards_by_split: Mapping[str, Sequence[Any]]) -> list[Row]:
    """A row for each split, with its number of shards and how even they are.

    Args:
        shards_by_split: {split: [infra.format.contract.Shard, ...]}.
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


def _largest(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def places_text(title: str, places: Mapping[str, Any], command: str) -> str:
    """Markdown that lists places, and a command that opens them."""
    lines = [f"### {title}", ""]
    for name, place in places.items():
        if place:
            link = f"[{place}]({Path(place).as_uri()})" if Path(place).is_absolute() else f"`{place}`"
            lines.append(f"- {name}: {link}")
    # Browsers do not follow file links from a page that a server gave; the path can be copied.
    return "\n".join([*lines, "", f"On the machine that ran it: `{command}`"])
