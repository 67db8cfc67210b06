"""``label-errors.html``: likely label errors of the train split with pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardmill.infra.html.page import style_hash, style_sheet
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.reading import RecordReader
from shardmill.training.results.predictions.label_errors import LabelErrors
from shardmill.training.results.report.gallery import read_thumbnails
from shardmill.training.results.report.page import template

PAGE_FILE = "label-errors.html"
_SHOWN = 120


@dataclass(frozen=True, slots=True)
class Fold:
    """A fold: the run that left it out, its examples, and the share of them that was predicted rightly."""

    run: str
    num_examples: int
    accuracy: float


@dataclass(frozen=True, slots=True)
class LabelErrorsPage:
    """What the page shows.

    Attributes:
        ref: the dataset version.
        errors: the likely label errors.
        figures: figures of the out-of-sample predictions.
        folds: one for each model.
    """

    ref: str
    errors: LabelErrors
    figures: Mapping[str, Any]
    folds: Sequence[Fold]


def write_label_errors_page(folder: Storage, page: LabelErrorsPage, reader: RecordReader) -> str:
    """Write the page into a folder and return its name.

    Args:
        folder: the folder.
        page: what it shows.
        reader: the records of the train split, for pictures.
    """
    shown, style = page.errors.listed[:_SHOWN], style_sheet()
    text = template("label_errors.html.j2").render(
        page=page,
        shown=shown,
        thumbnails=read_thumbnails(reader, [(error.id, error.source_uri) for error in shown]),
        style=style,
        style_hash=style_hash(style),
    )
    folder.write_atomic(PAGE_FILE, text.encode("utf-8"))
    return PAGE_FILE
