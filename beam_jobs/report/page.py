"""The page: a Jinja2 template filled with rows, under a content security policy that allows nothing else.

The policy names the hash of the one style sheet, so markup that slipped in could neither run, nor load,
nor style anything. Charts are inline SVG whose geometry stands in attributes: no inline styles.
"""

from __future__ import annotations

import base64
import hashlib
import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from beam_jobs.report.balance import shard_balance
from beam_jobs.report.findings import explain, find
from beam_jobs.report.pictures import Pictures
from beam_jobs.report.rows import ClassRow, Duplicates, ReasonRow
from beam_jobs.report.survey import LogHistogram, Survey
from infra.contract import OUTCOMES, Manifest

# Up to here every class has its row in sight; above, the largest and smallest do and the rest unfolds.
CLASSES_IN_SIGHT = 40
CONFLICTS_SHOWN = 60
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def render_page(
    manifest: Manifest,
    *,
    classes: Sequence[ClassRow],
    quarantined: Sequence[ReasonRow],
    filtered: Sequence[ReasonRow],
    duplicates: Duplicates,
    survey: Survey,
    pictures: Pictures,
) -> str:
    """The whole page."""
    style = _resource("style.css")
    in_conflict = {conflict.sha256[:16] for conflict in manifest.label_conflicts}
    by_size = sorted(classes, key=lambda row: (-row.num_inputs, row.name))
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            manifest=manifest,
            style=style,
            style_hash=base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii"),
            outcomes={name: _outcome_count(manifest, name) for name in OUTCOMES},
            findings=find(manifest, classes),
            classes=by_size,
            in_sight=CLASSES_IN_SIGHT,
            largest_class=max([1, *(max(row.num_inputs, row.num_records) for row in classes)]),
            curve=_rank_curve(by_size) if len(by_size) > CLASSES_IN_SIGHT else "",
            balance=shard_balance(manifest),
            histograms=_histograms(survey),
            formats=sorted(survey.formats.items(), key=lambda item: (-item[1], item[0])),
            survey=survey,
            quarantined=quarantined,
            filtered=filtered,
            duplicates=duplicates,
            harmless=[group for group in duplicates.groups if group.record_id not in in_conflict],
            conflicts=manifest.label_conflicts[:CONFLICTS_SHOWN],
            sheets=[(name, pictures.sheets.get(label, [])) for label, name in enumerate(manifest.classes)],
            thumbnails=pictures.by_id,
            config=list(_flat(manifest.config)),
            stored_bytes=sum(shard.num_bytes for shard in manifest.shards),
        )
    )


def visible(text: object) -> str:
    """Text as it may be shown: control, direction and unpaired characters become visible escapes.

    Escaping keeps a name from being markup; this keeps it from looking like another name.
    """
    return "".join(
        f"\\u{ord(character):04x}" if _is_hidden(character) else character for character in str(text)
    )


def _is_hidden(character: str) -> bool:
    # Joiners are hidden too, but scripts and emoji are spelt with them.
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    return hidden and character not in "\u200c\u200d"


def _bytes(value: float) -> str:
    """12.3 MiB"""
    power = 0
    while value >= 1024 and power < len(_BYTE_UNITS) - 1:
        value /= 1024
        power += 1
    return (
        f"{value:,.0f} {_BYTE_UNITS[power]}"
        if power == 0 or value >= 100
        else f"{value:.1f} {_BYTE_UNITS[power]}"
    )


def _percent(part: float, whole: float) -> str:
    """A share for an SVG attribute: 43.217%"""
    return f"{100 * part / whole:.3f}%" if whole else "0%"


def _share(part: float, whole: float) -> str:
    """A share for people: 43.2 %, <0.1 %"""
    if not whole or not part:
        return "0 %"
    percent = 100 * part / whole
    return f"{percent:.1f} %" if percent >= 0.1 else "<0.1 %"


def _outcome_count(manifest: Manifest, outcome: str) -> int:
    counts = manifest.accounting
    return {
        "record": counts.num_records,
        "duplicate": counts.num_duplicates,
        "filtered": counts.num_filtered,
        "quarantined": counts.num_quarantined,
    }[outcome]


def _histograms(survey: Survey) -> list[dict[str, Any]]:
    def pixels(value: float) -> str:
        return f"{value:,.0f} px"

    def ratio(value: float) -> str:
        return f"{value:.2f}"

    described: list[tuple[str, LogHistogram, Any]] = [
        ("Short side of sources", survey.short_side, pixels),
        ("Width ÷ height", survey.aspect, ratio),
        ("Source files", survey.source_bytes, _bytes),
        ("Stored images", survey.stored_bytes, _bytes),
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


def _rank_curve(by_size: Sequence[ClassRow], width: int = 1000, height: int = 180) -> str:
    """Path of the class sizes, the largest first, on a logarithmic scale: SVG path data."""
    top = math.log1p(max(1, by_size[0].num_inputs))
    step = width / len(by_size)
    points = " ".join(
        f"L{at * step:.1f} {y:.1f} L{(at + 1) * step:.1f} {y:.1f}"
        for at, row in enumerate(by_size)
        for y in [height * (1 - math.log1p(row.num_inputs) / top)]
    )
    return f"M0 {height} {points} L{width} {height} Z"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested configuration as ("image.size", "256") rows."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", "—" if value is None or value in ([], (), {}) else str(value)


@cache
def _resource(name: str) -> str:
    return resources.files("beam_jobs.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_resource),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Every text passes here, also where the template forgets a filter. Markup of macros stays as it is.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters.update(bytes=_bytes, count=lambda value: f"{value:,}", when=_when)
    environment.globals.update(percent=_percent, share=_share, explain=explain)
    return environment


def _when(created_at: str) -> str:
    """2026-11-21 02:35 UTC of an ISO 8601 time; the text itself where it is another."""
    return (
        f"{created_at[:10]} {created_at[11:16]} UTC"
        if len(created_at) >= 16 and created_at[10] == "T"
        else created_at
    )
