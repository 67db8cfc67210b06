"""The pages of a run and of likely label errors of its train split: Jinja2 templates, and what fills them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, Template
from markupsafe import Markup, escape

from shardmill.infra.codecs.masks import legend
from shardmill.infra.html.charts import Points, curves_svg
from shardmill.infra.html.page import environment, setting_rows, settings_in_use, style_hash, style_sheet
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.metrics.evaluation import Figure
from shardmill.training.metrics.figures import FIGURES
from shardmill.training.reading import RecordReader
from shardmill.training.results.pictures.classification import class_pictures
from shardmill.training.results.predictions.hardest import HardExample
from shardmill.training.results.predictions.label_errors.found import LabelError, LabelErrors
from shardmill.training.results.report.gallery import Thumbnail, read_thumbnails
from shardmill.training.tasks.registry import KINDS

PAGE_FILE = "label-errors.html"
_SHOWN = 120
_LARGEST_MATRIX = 60  # classes; a larger confusion matrix stays a file of its own
_CLASSES_IN_SIGHT = 40
# The end of a figure's name, the title of its chart, and the factor of its unit there.
_DEVICE_CHARTS = (
    ("_utilization", "GPU utilisation (%)", 100.0),
    ("_memory_bytes", "GPU memory, peak (GiB)", 1 / (1 << 30)),
)


@dataclass(frozen=True, slots=True)
class Contents:
    """All that the page shows of a run.

    Attributes:
        run: the name of the run.
        result: its result; of an unfinished run what is known so far, without ``images_per_second``.
        environment: code, packages, machine, devices and configuration.
        hardest: split -> examples that the model got most wrong.
        label_errors: likely label errors; None: there was nothing to look at.
        label_errors_shown: those that are shown with their pictures.
        thumbnails: record id -> its picture.
        scatters: split -> pictures of predicted beside true numbers, as SVG; one for each target.
    """

    run: str
    result: Mapping[str, Any]
    environment: Mapping[str, Any]
    hardest: Mapping[str, Sequence[HardExample]]
    label_errors: LabelErrors | None = None
    label_errors_shown: Sequence[LabelError] = ()
    thumbnails: Mapping[str, Thumbnail] = field(default_factory=dict)
    scatters: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SplitView:
    """The part of the page about a split.

    Attributes:
        name: name of the split.
        num_examples: evaluated.
        tiles: its figures, with their values as text.
        classes: one row per class: name, support, precision, recall and F1, the largest class first.
        tables: what a row is of, target or data set, and a row of each: name, and its figures as text.
        confusion, reliability: pictures, empty where there are none.
        scatters: pictures of predicted beside true numbers.
        matrix_file: the file of a confusion matrix that is too large for the page; None: there is none.
    """

    name: str
    num_examples: int
    tiles: Sequence[tuple[Figure, str]]
    classes: Sequence[tuple[str, Mapping[str, float]]]
    tables: Sequence[tuple[str, Sequence[tuple[str, Mapping[str, str]]]]]
    confusion: Markup
    reliability: Markup
    matrix_file: str | None
    scatters: Sequence[Markup] = ()


def render_page(contents: Contents) -> str:
    """Render the page as HTML."""
    style, result = style_sheet(), contents.result
    kind = KINDS[result.get("task", "single-label")]
    splits = [
        _view(name, figures, result["classes"], contents.scatters.get(name, ()))
        for name, figures in result["metrics"].items()
    ]
    splits.sort(key=lambda view: view.name != "test")  # the test split first
    return template("run.html.j2").render(
        run=contents.run,
        result=result,
        style=style,
        style_hash=style_hash(style),
        splits=splits,
        is_finished="images_per_second" in result,
        charts=list(_charts(result["history"])),
        in_sight=_CLASSES_IN_SIGHT,
        hardest=[
            (view.name, contents.hardest[view.name]) for view in splits if view.name in contents.hardest
        ],
        label_errors=contents.label_errors,
        label_errors_shown=contents.label_errors_shown,
        thumbnails=contents.thumbnails,
        kind=kind,
        colours=legend(result["classes"]) if kind.output == "pixels" else [],
        config=list(setting_rows(settings_in_use(contents.environment["config"], "ranks", "launcher"))),
        facts=list(_facts(contents.environment, result)),
    )


def _view(
    name: str, figures: Mapping[str, Any], classes: Sequence[str], scatters: Sequence[str]
) -> SplitView:
    pictures = class_pictures(name, figures, classes)
    is_too_large = "confusion" in pictures and len(classes) > _LARGEST_MATRIX
    per_class = figures.get("per_class", {})
    by_size = sorted(per_class.items(), key=lambda row: (-row[1].get("support", 0), row[0]))
    tables = [
        (what, [(row, _in_words(of_row)) for row, of_row in figures[key].items()])
        for what, key in (("target", "per_target"), ("data set", "by_data_set"))
        if figures.get(key)
    ]
    return SplitView(
        name,
        figures["num_examples"],
        [(figure, figure.text(figures[key])) for key, figure in FIGURES.items() if key in figures],
        by_size,
        tables,
        # The pictures escape the names in them.
        Markup("" if is_too_large else pictures.get("confusion", "")),
        Markup(pictures.get("reliability", "")),
        f"confusion-{name}.svg" if is_too_large else None,
        [Markup(scatter) for scatter in scatters],
    )


def _in_words(figures: Mapping[str, float]) -> dict[str, str]:
    return {FIGURES[key].words: FIGURES[key].text(value) for key, value in figures.items() if key in FIGURES}


def _charts(history: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Markup]]:
    """Yield (title, picture) of the curves over epochs."""
    for key in ("loss", *(name for name, figure in FIGURES.items() if figure.has_curve and name != "loss")):
        series: dict[str, Points] = {}
        for split in ("train", "validation"):
            points = [(row["epoch"], row[split][key]) for row in history if key in row.get(split, {})]
            if points:
                series[split] = points
        if series:
            yield FIGURES[key].words, curves_svg(series, f"{FIGURES[key].words} by epoch")
    yield from _device_charts(history)


def _device_charts(history: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Markup]]:
    """Yield (title, picture) of the use of each GPU; nothing if none was sampled."""
    for figure, title, factor in _DEVICE_CHARTS:
        series: dict[str, list[tuple[float, float]]] = {}
        for row in history:
            for name, value in row.get("devices", {}).items():
                if name.endswith(figure):
                    points = series.setdefault(name.removesuffix(figure), [])
                    points.append((row["epoch"], value * factor))
        if series:
            yield title, curves_svg(series, f"{title} by epoch", kind="device")


def _facts(found: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a run was made with, as (name, text)."""
    code, dataset = found["code"], found["dataset"]
    yield "shardmill", code["shardmill"]
    if "commit" in code:
        yield "commit", code["commit"][:12] + (" with changes" if code["modified"] else "")
    yield "python", found["python"]
    yield from found["packages"].items()
    yield "platform", found["platform"]
    yield "processor cores", str(found["cpus"])
    yield "devices", ", ".join(found["devices"])
    yield "seed", str(found["seed"])
    yield "dataset source", dataset["source"]
    yield "manifest SHA-256", dataset["manifest_sha256"]
    if "images_per_second" in result:
        yield "images a second, without validation", f"{result['images_per_second']:,.0f}"
        yield "waiting for data", f"{result['input_wait_fraction']:.1%}"


@dataclass(frozen=True, slots=True)
class Fold:
    """A fold: the run that left it out, its examples, and the first figure of the task on them, as text."""

    run: str
    num_examples: int
    figure: str


@dataclass(frozen=True, slots=True)
class LabelErrorsPage:
    """What the page shows.

    Attributes:
        ref: the dataset version.
        errors: the likely label errors.
        tiles: figures of the out-of-sample predictions: their names for people, and values.
        figure: the name of the figure of a fold.
        folds: one for each model.
    """

    ref: str
    errors: LabelErrors
    tiles: Sequence[tuple[str, str]]
    figure: str
    folds: Sequence[Fold]


def write_label_errors_page(folder: Storage, page: LabelErrorsPage, reader: RecordReader) -> str:
    """Write the page into a folder and return its name.

    Args:
        folder: the folder.
        page: what it shows.
        reader: the records of the train split, for pictures.
    """
    shown, style = page.errors.listed[:_SHOWN], style_sheet()
    drawn = {error.id: error.annotation for error in shown if error.annotation is not None}
    text = template("label_errors.html.j2").render(
        page=page,
        shown=shown,
        thumbnails=read_thumbnails(reader, [(error.id, error.source_uri) for error in shown], drawn),
        style=style,
        style_hash=style_hash(style),
    )
    folder.write_atomic(PAGE_FILE, text.encode("utf-8"))
    return PAGE_FILE


def template(name: str) -> Template:
    """Return a template of this package."""
    return _environment().get_template(name)


@cache
def _resource(name: str) -> str:
    return (
        resources.files("shardmill.training.results.report")
        .joinpath("templates", name)
        .read_text(encoding="utf-8")
    )


@cache
def _environment() -> Environment:
    made = environment(_resource)
    made.filters["link"] = escape  # a URI is never shortened
    return made
