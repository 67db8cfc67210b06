"""The sections of the report, in the order of the page.

A section has its values here, made from ``Contents``, and its text in ``templates/<name>.html.j2``. To add
one, write both, and name it in ``SECTIONS``: it appears, and in the navigation too, unless its values are
None. Every template has ``manifest``, ``outcomes`` (of all inputs), ``thumbnails`` (record id -> picture),
``dropped`` (URI -> picture of an input that was dropped as a leak) and ``stored_bytes`` besides.

The policy of the page allows the hash of the one style sheet and nothing else, so injected markup could
neither run, load nor style anything. Charts are inline SVG with geometry and colours in attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, Template
from markupsafe import Markup
from pydantic import ValidationError

from shardmill.beam_jobs.config import SourceConfig
from shardmill.beam_jobs.reasons import explain
from shardmill.beam_jobs.report.figures.changes import FIGURES_SHOWN, ChangesSince
from shardmill.beam_jobs.report.figures.groups import DividedKey, NearDuplicateGroups
from shardmill.beam_jobs.report.figures.histogram import histograms
from shardmill.beam_jobs.report.figures.inputs import (
    REASONS_SHOWN,
    ClassRow,
    InputFigures,
    LostInput,
    ReasonRow,
)
from shardmill.beam_jobs.report.figures.quality import FlagFigures
from shardmill.beam_jobs.report.figures.splits import shard_balance, split_figures
from shardmill.beam_jobs.report.figures.survey import Survey, traits
from shardmill.beam_jobs.report.findings import find
from shardmill.beam_jobs.report.gallery import Exhibit
from shardmill.beam_jobs.report.thumbnails import Pictures, Thumbnail
from shardmill.infra.codecs.masks import legend
from shardmill.infra.dataset.drift.figures import Drift
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.format.known_features import NO_CLASS, LabelKind
from shardmill.infra.html.page import environment, setting_rows, settings_in_use
from shardmill.infra.settings import STORED
from shardmill.infra.storage.filesystem import Storage

# A sentence about the classes, by kind of labels.
_LABEL_WORDS: dict[LabelKind, str] = {
    "class": "of the inputs and of the records",
    "multi": "records that have each label; an image may have several",
    "mask": "records whose mask shows each class",
    "targets": "numbers, divided evenly by their tenths",
    "none": "the images have none",
}
# So many classes are always shown; a reader can unfold the others.
_CLASSES_IN_SIGHT = 40
_CLASSES_LISTED = 1000
_CONFLICTS_SHOWN = 40
_EXAMPLES_LISTED = 240
_CLASS_CHANGES_SHOWN = 12

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Contents:
    """The version, figures and pictures that the page shows.

    Attributes:
        storage: the dataset's folder.
        pictures: of records, by class and by id.
        gallery: the inputs that are shown as examples, by reason.
        dropped: pictures of the inputs that were dropped as leaks, by URI.
        removed: pictures of removed records from the previous version, by record id.
    """

    storage: Storage
    manifest: Manifest
    inputs: InputFigures
    survey: Survey
    near: NearDuplicateGroups
    keys: Sequence[DividedKey]
    quality: Sequence[FlagFigures]
    since: ChangesSince | None
    drift: Drift | None
    pictures: Pictures
    gallery: Mapping[str, Sequence[Exhibit]] = field(default_factory=dict)
    dropped: Mapping[str, Exhibit] = field(default_factory=dict)
    removed: Mapping[str, Thumbnail] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page.

    Attributes:
        name: of its template, and in links.
        title: in the navigation.
        values: the values of its template; None if it has nothing to show.
    """

    name: str
    title: str
    values: Callable[[Contents], Values | None]

    def render(self, contents: Contents, shared: Values) -> Markup | None:
        """Return its HTML; None if it has nothing to show."""
        values = self.values(contents)
        return None if values is None else Markup(template(self.name).render(**shared, **values))


def _accounting(page: Contents) -> Values:
    num_salvaged = page.survey.traits["salvaged"]["True"]
    return {"findings": find(page.manifest, page.inputs.classes, page.near, num_salvaged, page.drift)}


def _since(page: Contents) -> Values | None:
    if page.since is None:
        return None
    difference = page.since.difference
    counts = difference.class_counts if difference else {}
    changed = [(name, old, new) for name, (old, new) in counts.items() if old != new]
    changed.sort(key=lambda row: (-abs(row[2] - row[1]), row[0]))
    return {
        "since": page.since,
        "class_changes": changed[:_CLASS_CHANGES_SHOWN],
        "removed": page.removed,
    }


def _drift(page: Contents) -> Values | None:
    if page.drift is None:
        return None
    return {"drift": page.drift, "drift_figures": page.drift.farthest(FIGURES_SHOWN)}


def _classes(page: Contents) -> Values:
    by_size = sorted(page.inputs.classes, key=lambda row: (-row.num_inputs, row.name))
    return {
        "classes": by_size,
        "in_sight": _CLASSES_IN_SIGHT,
        "listed": _CLASSES_LISTED,
        "largest_class": max([1, *(max(row.num_inputs, row.num_records) for row in by_size)]),
        "curve": _rank_curve(by_size) if len(by_size) > _CLASSES_IN_SIGHT else "",
        "label_words": _LABEL_WORDS[page.manifest.label_kind],
    }


def _pictures(page: Contents) -> Values:
    classes, sheets = page.manifest.classes, page.pictures.sheets
    shown = [(name, sheets.get(label, [])) for label, name in enumerate(classes)]
    return {
        "sheets": shown if page.manifest.label_kind == "class" else [("records", sheets.get(NO_CLASS, []))],
        "colours": legend(classes[:_CLASSES_IN_SIGHT]) if page.manifest.mask is not None else [],
    }


def _splits(page: Contents) -> Values:
    return {"balance": shard_balance(page.manifest), "figures": split_figures(page.manifest)}


def _sources(page: Contents) -> Values:
    survey = page.survey
    return {"survey": survey, "histograms": histograms(survey.measured), "traits": traits(survey)}


def _objects(page: Contents) -> Values | None:
    return {"objects": page.survey.objects} if page.survey.objects else None


def _quality(page: Contents) -> Values | None:
    rules = page.manifest.config.get("filter")
    left_out = rules.get("quality", ()) if isinstance(rules, Mapping) else ()
    return {"flags": page.quality, "left_out": left_out} if page.quality else None


def _leaks(page: Contents) -> Values | None:
    if not page.near.num_leaks and not page.manifest.leaks.key_groups:
        return None
    groups = page.manifest.config.get("groups")
    leakage = groups.get("leakage") if isinstance(groups, Mapping) else None
    return {"leakage": leakage, "near": page.near, "keys": page.keys}


def _near_duplicates(page: Contents) -> Values | None:
    return {"near": page.near} if page.near.num_groups else None


def _duplicates(page: Contents) -> Values | None:
    found, conflicts = page.inputs.duplicates, page.manifest.label_conflicts
    in_conflict = {conflict.sha256[:16] for conflict in conflicts}
    harmless = [group for group in found.groups if group.record_id not in in_conflict]
    shown = {"duplicates": found, "harmless": harmless, "conflicts": conflicts[:_CONFLICTS_SHOWN]}
    return shown if found.num_groups else None


def _quarantine(page: Contents) -> Values | None:
    return lost_inputs(page.inputs.quarantined, page.inputs.filtered, page.gallery)


def lost_inputs(
    quarantined: Sequence[ReasonRow],
    filtered: Sequence[ReasonRow],
    gallery: Mapping[str, Sequence[Exhibit]],
) -> Values | None:
    """Return the values of the section of inputs that are in no shard; None if there are none."""
    if not quarantined and not filtered:
        return None
    shown = {"quarantined": _few(quarantined), "filtered": _few(filtered), "gallery": gallery}
    return {**shown, "explain": explain, "unshown": _unshown}


def _few(rows: Sequence[ReasonRow]) -> list[ReasonRow]:
    """Choose the most frequent reasons; the more there are, the fewer examples each has."""
    rows = rows[:REASONS_SHOWN]
    each = max(1, _EXAMPLES_LISTED // max(1, len(rows)))
    return [replace(row, examples=row.examples[:each]) for row in rows]


def _unshown(examples: Sequence[LostInput], exhibits: Sequence[Exhibit]) -> list[LostInput]:
    shown = {item.found.uri for item in exhibits}
    return [example for example in examples if example.uri not in shown]


def _configuration(page: Contents) -> Values:
    """The settings, without those of runners and kinds of source that the version does not use."""
    config = settings_in_use(page.manifest.config, "runner", "name")
    source = config.get("source", {})
    try:
        unused = SourceConfig.model_validate(source, context=STORED).without_effect()
        config = {**config, "source": {key: value for key, value in source.items() if key not in unused}}
    except (ValidationError, ConfigError):  # written by another release
        pass
    return {"config": list(setting_rows(config))}


SECTIONS: Final = (
    Section("accounting", "Accounting", _accounting),
    Section("since", "Changes", _since),
    Section("drift", "Drift", _drift),
    Section("classes", "Classes", _classes),
    Section("pictures", "Pictures", _pictures),
    Section("splits", "Splits", _splits),
    Section("sources", "Sources", _sources),
    Section("objects", "Objects", _objects),
    Section("quality", "Quality", _quality),
    Section("leaks", "Leaks", _leaks),
    Section("near-duplicates", "Near-duplicates", _near_duplicates),
    Section("duplicates", "Duplicates", _duplicates),
    Section("quarantine", "Quarantine", _quarantine),
    Section("configuration", "Configuration", _configuration),
    Section("lineage", "Lineage", lambda _: {}),
)


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


def template(name: str) -> Template:
    """Return a template of this folder, by its name without suffix."""
    return _environment().get_template(f"{name}.html.j2")


@cache
def _environment() -> Environment:
    folder = resources.files("shardmill.beam_jobs.report").joinpath("templates")
    return environment(cache(lambda name: folder.joinpath(name).read_text(encoding="utf-8")))
