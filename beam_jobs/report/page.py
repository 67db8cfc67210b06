"""Render the report page from Jinja2 templates, with a strict content security policy.

The policy allows the hash of the one style sheet and nothing else, so injected markup could neither run, load
nor style anything. Charts are inline SVG with geometry and colours in attributes, without inline styles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment
from markupsafe import Markup
from pydantic import ValidationError

from shardmill.beam_jobs.config import SourceConfig
from shardmill.beam_jobs.report.figures.balance import shard_balance
from shardmill.beam_jobs.report.figures.changes import FIGURES_SHOWN, ChangesSince
from shardmill.beam_jobs.report.figures.divided_groups import DividedKey
from shardmill.beam_jobs.report.figures.histogram import LogHistogram
from shardmill.beam_jobs.report.figures.inputs import (
    REASONS_SHOWN,
    ClassRow,
    InputFigures,
    LostInput,
    ReasonRow,
)
from shardmill.beam_jobs.report.figures.near_duplicates import NearDuplicateGroups
from shardmill.beam_jobs.report.figures.statistics import split_figures
from shardmill.beam_jobs.report.figures.survey import Survey
from shardmill.beam_jobs.report.figures.traits import traits
from shardmill.beam_jobs.report.findings import find
from shardmill.beam_jobs.report.pictures.gallery import Exhibit
from shardmill.beam_jobs.report.pictures.thumbnails import Pictures, Thumbnail
from shardmill.beam_jobs.report.reasons import explain
from shardmill.infra.codecs.masks import legend
from shardmill.infra.dataset.drift.figures import Drift
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.contract import OUTCOMES, Accounting, Manifest
from shardmill.infra.format.labels import NO_CLASS, LabelKind
from shardmill.infra.html import formatting
from shardmill.infra.html.formatting import setting_rows, settings_in_use
from shardmill.infra.html.page import environment, style_hash, style_sheet
from shardmill.infra.readable import readable_bytes
from shardmill.infra.settings import STORED

# A sentence about the classes, by kind of labels.
_LABEL_WORDS: dict[LabelKind, str] = {
    "class": "of the inputs and of the records",
    "multi": "records that have each label; an image may have several",
    "mask": "records whose mask shows each class",
    "targets": "numbers, divided evenly by their tenths",
    "none": "the images have none",
}
# So many classes are always shown; a reader can unfold the others.
CLASSES_IN_SIGHT = 40
CLASSES_LISTED = 1000
CONFLICTS_SHOWN = 40
EXAMPLES_LISTED = 240
CLASS_CHANGES_SHOWN = 12


@dataclass(frozen=True, slots=True)
class PagePictures:
    """The pictures on the page.

    Attributes:
        records: pictures of records, by class and by id.
        gallery: the inputs that are shown as examples, by reason.
        dropped: pictures of the inputs that were dropped as leaks, by URI.
        removed: pictures of removed records from the previous version, by record id.
    """

    records: Pictures
    gallery: Mapping[str, Sequence[Exhibit]] = field(default_factory=dict)
    dropped: Mapping[str, Exhibit] = field(default_factory=dict)
    removed: Mapping[str, Thumbnail] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Contents:
    """The manifest, figures and pictures that the page shows."""

    manifest: Manifest
    inputs: InputFigures
    survey: Survey
    near: NearDuplicateGroups
    keys: Sequence[DividedKey]
    since: ChangesSince | None
    drift: Drift | None
    pictures: PagePictures


def _sheets(
    manifest: Manifest, sheets: Mapping[int, Sequence[Thumbnail]]
) -> list[tuple[str, Sequence[Thumbnail]]]:
    """Return (class name, pictures) of each class; for other kinds of labels, one entry for all records."""
    if manifest.label_kind != "class":
        return [("records", sheets.get(NO_CLASS, []))]
    return [(name, sheets.get(label, [])) for label, name in enumerate(manifest.classes)]


def render_page(contents: Contents) -> str:
    """Return the page of a published version as HTML."""
    manifest, inputs, near = contents.manifest, contents.inputs, contents.near
    pictures = contents.pictures
    style = style_sheet()
    in_conflict = {conflict.sha256[:16] for conflict in manifest.label_conflicts}
    by_size = sorted(inputs.classes, key=lambda row: (-row.num_inputs, row.name))
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            manifest=manifest,
            style=style,
            style_hash=style_hash(style),
            outcomes={name: _outcome_count(manifest.accounting, name) for name in OUTCOMES},
            findings=find(
                manifest, inputs.classes, near, contents.survey.traits["salvaged"]["True"], contents.drift
            ),
            classes=by_size,
            in_sight=CLASSES_IN_SIGHT,
            listed=CLASSES_LISTED,
            largest_class=max([1, *(max(row.num_inputs, row.num_records) for row in by_size)]),
            curve=_rank_curve(by_size) if len(by_size) > CLASSES_IN_SIGHT else "",
            balance=shard_balance(manifest),
            figures=split_figures(manifest),
            histograms=_histograms(contents.survey),
            traits=traits(contents.survey),
            survey=contents.survey,
            objects=contents.survey.objects,
            quarantined=_few(inputs.quarantined),
            filtered=_few(inputs.filtered),
            gallery=pictures.gallery,
            unshown=_unshown,
            near=near,
            keys=contents.keys,
            has_leaks=bool(near.num_leaks or manifest.leaks.key_groups),
            dropped=pictures.dropped,
            leakage=_setting(manifest, "groups", "leakage"),
            since=contents.since,
            drift=contents.drift,
            drift_figures=contents.drift.farthest(FIGURES_SHOWN) if contents.drift else [],
            class_changes=_class_changes(contents.since),
            removed=pictures.removed,
            duplicates=inputs.duplicates,
            harmless=[group for group in inputs.duplicates.groups if group.record_id not in in_conflict],
            conflicts=manifest.label_conflicts[:CONFLICTS_SHOWN],
            sheets=_sheets(manifest, pictures.records.sheets),
            colours=legend(manifest.classes[:CLASSES_IN_SIGHT]) if manifest.mask is not None else [],
            label_words=_LABEL_WORDS[manifest.label_kind],
            thumbnails=pictures.records.by_id,
            config=list(setting_rows(_in_use(manifest.config))),
            stored_bytes=sum(shard.num_bytes for shard in manifest.shards),
        )
    )


def render_refused(
    dataset: str,
    accounting: Accounting,
    quarantined: Sequence[ReasonRow],
    filtered: Sequence[ReasonRow],
    gallery: Mapping[str, Sequence[Exhibit]],
) -> str:
    """Return the page of a run that published nothing, as HTML."""
    style = style_sheet()
    return (
        _environment()
        .get_template("refused.html.j2")
        .render(
            dataset=dataset,
            style=style,
            style_hash=style_hash(style),
            num_inputs=accounting.num_inputs,
            outcomes={name: _outcome_count(accounting, name) for name in OUTCOMES},
            quarantined=_few(quarantined),
            filtered=_few(filtered),
            gallery=gallery,
            unshown=_unshown,
        )
    )


def _few(rows: Sequence[ReasonRow]) -> list[ReasonRow]:
    """Choose the most frequent reasons; the more there are, the fewer examples each has."""
    rows = rows[:REASONS_SHOWN]
    each = max(1, EXAMPLES_LISTED // max(1, len(rows)))
    return [replace(row, examples=row.examples[:each]) for row in rows]


def _setting(manifest: Manifest, table: str, name: str) -> Any:
    found = manifest.config.get(table)
    return found.get(name) if isinstance(found, Mapping) else None


def _in_use(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a configuration without the settings of runners and kinds of source that it does not use."""
    config = settings_in_use(config, "runner", "name")
    source = config.get("source", {})
    try:
        unused = SourceConfig.model_validate(source, context=STORED).without_effect()
    except (ValidationError, ConfigError):  # written by another release
        return config
    return {**config, "source": {name: value for name, value in source.items() if name not in unused}}


def _outcome_count(counts: Accounting, outcome: str) -> int:
    return {
        "record": counts.num_records,
        "duplicate": counts.num_duplicates,
        "filtered": counts.num_filtered,
        "quarantined": counts.num_quarantined,
    }[outcome]


def _unshown(examples: Sequence[LostInput], exhibits: Sequence[Exhibit]) -> list[LostInput]:
    shown = {item.found.uri for item in exhibits}
    return [example for example in examples if example.uri not in shown]


def _class_changes(since: ChangesSince | None) -> list[tuple[str, int, int]]:
    """Return (class, records before, records after) of the classes that changed most."""
    if since is None or since.difference is None:
        return []
    changed = [(name, old, new) for name, (old, new) in since.difference.class_counts.items() if old != new]
    return sorted(changed, key=lambda row: (-abs(row[2] - row[1]), row[0]))[:CLASS_CHANGES_SHOWN]


def _histograms(survey: Survey) -> list[dict[str, Any]]:
    described: list[tuple[str, LogHistogram, Any]] = [
        ("Short side of sources", survey.short_side, formatting.pixels),
        ("Width ÷ height", survey.aspect, formatting.ratio),
        ("Source files", survey.source_bytes, readable_bytes),
        ("Stored images", survey.stored_bytes, readable_bytes),
    ]
    return [
        {
            "title": title,
            "bars": [(bar, f"{say(bar.low)} – {say(bar.high)}: {bar.count:,}") for bar in histogram.bars()],
            "highest": max(bar.count for bar in histogram.bars()),
            "minimum": say(histogram.minimum),
            "median": say(histogram.median()),
            "maximum": say(histogram.maximum),
            "is_constant": histogram.minimum == histogram.maximum,
        }
        for title, histogram, say in described
        if histogram.total
    ]


def _rank_curve(by_size: Sequence[ClassRow], width: int = 1000, height: int = 180) -> Markup:
    """Draw the class sizes, the largest first, on a logarithmic scale; returns SVG path data."""
    top = math.log1p(max(1, by_size[0].num_inputs))
    ranks = range(0, len(by_size), max(1, len(by_size) // width))
    step = width / len(ranks)
    points = " ".join(
        f"L{at * step:.1f} {y:.1f} L{(at + 1) * step:.1f} {y:.1f}"
        for at, rank in enumerate(ranks)
        for y in [height * (1 - math.log1p(by_size[rank].num_inputs) / top)]
    )
    return Markup(f"M0 {height} {points} L{width} {height} Z")


@cache
def _resource(name: str) -> str:
    return (
        resources.files("shardmill.beam_jobs.report").joinpath("templates", name).read_text(encoding="utf-8")
    )


@cache
def _environment() -> Environment:
    made = environment(_resource)
    made.globals.update(explain=explain)
    return made
