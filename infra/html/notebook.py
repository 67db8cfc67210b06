"""Parts of what a notebook shows: HTML without a style sheet, a script, or anything from elsewhere.

Text has the colour of the notebook, light or dark, and colours of our own are seen on both grounds. Hosts
that remove styles still show the tables and pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from shardmill.infra.html.page import visible

_SPLIT_COLOURS = {"train": "#1f8a70", "validation": "#c98a10", "test": "#d4617a"}
_SOFT = "opacity:.75"
_NUMBER = "text-align:right;padding:2px 12px 2px 0;white-space:nowrap"
_TEXT = "text-align:left;padding:2px 12px 2px 0;overflow-wrap:break-word"
_BAR_PIXELS = 120


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture with lines of text below it, the first one stronger.

    Attributes:
        picture: a data URI; None: there is no picture, and the lines say why.
        size: its height and width (pixels).
        lines: the text.
    """

    picture: Markup | None
    size: tuple[int, int]
    lines: tuple[str, ...]


def block(title: str, facts: Sequence[str], parts: Iterable[Markup]) -> str:
    """Return one HTML element: a heading, a line of facts, and below them the given parts."""
    heading = Markup('<b style="font-size:115%">{}</b>').format(visible(title))
    if facts:
        line = Markup('<br><span style="{}">{}</span>')
        heading += line.format(Markup(_SOFT), visible(" · ".join(facts), 400))
    body = Markup("").join([Markup('<p style="margin:0 0 8px">{}</p>').format(heading), *parts])
    whole = '<div style="max-width:60rem;line-height:1.4;overflow-wrap:anywhere">{}</div>'
    return str(Markup(whole).format(body))


def page(title: str, body: str) -> str:
    """Return a page of its own with what a notebook would show, in the colours of the reader's system."""
    head = (
        '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
    )
    head += '<meta name="viewport" content="width=device-width"><title>{}</title>'
    style = "font-family:system-ui,sans-serif;margin:1rem"
    whole = Markup(head + '<body style="{}">{}</body></html>')
    return str(whole.format(visible(title), style, Markup(body)))


def paragraph(text: str) -> Markup:
    """Return a paragraph of a few sentences."""
    return Markup('<p style="margin:8px 0;{}">{}</p>').format(Markup(_SOFT), visible(text, 1000))


def contact_sheet(figures: Iterable[Figure], side: int) -> Markup:
    """Return pictures side by side, each within a square of ``side`` pixels."""
    shown = Markup("").join(_figure(figure, side) for figure in figures)
    return Markup('<div style="display:flex;flex-wrap:wrap;gap:12px;margin:12px 0 4px">{}</div>').format(
        shown
    )


def _figure(figure: Figure, side: int) -> Markup:
    if figure.picture is None:
        frame = f"width:{side}px;height:{side}px;box-sizing:border-box;border:1px dashed;padding:8px;{_SOFT}"
        picture = Markup('<div style="{}">no picture</div>').format(Markup(frame))
    else:
        scale = side / max(figure.size)
        height, width = (max(1, round(length * scale)) for length in figure.size)
        picture = Markup(
            '<img src="{}" alt="{}" width="{}" height="{}" style="display:block;border-radius:4px">'
        ).format(figure.picture, visible(" ".join(figure.lines[:1])), width, height)
        top = (side - height) // 2
        picture = Markup('<div style="height:{}px;padding-top:{}px">{}</div>').format(
            side - top, top, picture
        )
    strong, *soft = figure.lines or ("",)
    lines = Markup("").join(
        Markup('<br><span style="{}">{}</span>').format(Markup(_SOFT), visible(line, 300)) for line in soft
    )
    return Markup(
        '<figure style="margin:0;width:{}px;font-size:85%">{}<figcaption style="margin-top:4px">{}{}'
        "</figcaption></figure>"
    ).format(side, picture, visible(strong), lines)


def count_table(
    counts: Mapping[str, Mapping[str, int]], rows: Sequence[str], totals: Mapping[str, int]
) -> Markup:
    """Return a table of the records of each split, in all and by class, with a bar for each class.

    Args:
        counts: {split: {class: count}}.
        rows: the classes to show.
        totals: {split: count}.
    """
    most = max((sum(of_split.get(name, 0) for of_split in counts.values()) for name in rows), default=0)
    square = Markup('<span style="color:{}">■</span> {}')
    heads = [_cell(square.format(_colour(split), visible(split)), _NUMBER) for split in totals]
    lines = [
        [_cell("", _TEXT), *heads],
        [_cell("records", _TEXT), *(_cell(f"{number:,}", _NUMBER) for number in totals.values())],
    ]
    for name in rows:
        own = {split: counts[split].get(name, 0) for split in totals}
        numbers = [_cell(f"{number:,}", _NUMBER) for number in own.values()]
        lines.append([_cell(visible(name), _TEXT), *numbers, _cell(_bar(own, most or 1), _TEXT)])
    body = Markup("").join(Markup("<tr>{}</tr>").format(Markup("").join(line)) for line in lines)
    table = '<div style="overflow-x:auto"><table style="border-collapse:collapse;margin:0">{}</table></div>'
    return Markup(table).format(body)


def _cell(content: str, style: str) -> Markup:
    return Markup('<td style="{}">{}</td>').format(style, content)


def _bar(counts: Mapping[str, int], most: int) -> Markup:
    """Return the records of a class in each split as one bar; ``most`` is as long as a bar may be."""
    part = Markup('<span style="width:{}px;background:{}" title="{}: {}"></span>')
    parts = [
        part.format(round(_BAR_PIXELS * number / most), _colour(split), visible(split), f"{number:,}")
        for split, number in counts.items()
    ]
    return Markup('<span style="display:inline-flex;height:9px">{}</span>').format(Markup("").join(parts))


def _colour(split: str) -> str:
    return _SPLIT_COLOURS.get(split, "#8a8f98")
