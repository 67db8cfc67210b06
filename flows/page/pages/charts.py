"""The curves of runs as pictures: a chart for each figure, with a curve for each split or run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from shardmill.flows.page.reading.runs import Curves, Point
from shardmill.infra.html.charts import curves_svg
from shardmill.training.metrics.figures import FIGURES

# Curves of one chart beyond this number cannot be told apart.
MOST_CURVES = 6
_CURVE_KINDS = tuple(f"number{index}" for index in range(MOST_CURVES))
_GIB = 1 / (1 << 30)
# What each report of the loop tells besides figures of the task, in the order of the page.
_OF_STEPS = {
    "step_loss": "loss of the last steps",
    "learning_rate": "learning rate",
    "images_per_second": "images a second in the last steps",
    "input_wait_fraction": "share of time spent waiting for data",
    "gradient_norm": "gradient norm",
}
_FIRST = ("loss", "step_loss", *[name for name in FIGURES if name != "loss"])


def run_charts(curves: Curves) -> Iterator[tuple[str, Markup]]:
    """Yield (title, picture) of each curve of a run: main figures first, curves of ranks last."""
    ranks = {name: curves[name] for name in _ranks(curves)}
    splits = {name: of_split for name, of_split in curves.items() if name not in ranks}
    yield from _charts(splits, {name: name for name in splits}, "")
    kinds = {name: curve_kind(index) for index, name in enumerate(ranks)}
    yield from _charts(ranks, kinds, ", each rank")


def _charts(curves: Curves, kinds: Mapping[str, str], of: str) -> Iterator[tuple[str, Markup]]:
    for name in _ordered({name for figures in curves.values() for name in figures}):
        series = {each: _points(figures[name], name) for each, figures in curves.items() if name in figures}
        title = f"{_words(name)}{of}"
        picture = curves_svg(series, f"{title} by step", kinds=kinds, across="step")
        if picture:
            yield title, picture


def legend(curves: Curves) -> list[tuple[str, str]]:
    """Return (series, class of its curves) of a run: train, validation, and its ranks."""
    ranks = [(name, curve_kind(index)) for index, name in enumerate(_ranks(curves))]
    return [("train", "train"), ("validation", "validation"), *ranks]


def _ranks(curves: Curves) -> list[str]:
    return sorted((name for name in curves if name.startswith("rank ")), key=_rank_number)


def _rank_number(name: str) -> int:
    number = name.removeprefix("rank ")
    return int(number) if number.isdecimal() else 0


def small_chart(curves: Curves) -> Markup:
    """Return a picture of the loss alone; empty if there is none yet."""
    train, validation = curves.get("train", {}), curves.get("validation", {})
    series = {
        "train": train.get("step_loss") or train.get("loss", []),
        "validation": validation.get("loss", []),
    }
    told = {split: _points(points, "loss") for split, points in series.items() if points}
    return curves_svg(told, "loss by step", across="step")


def compared_charts(runs: Sequence[tuple[str, Curves]]) -> Iterator[tuple[str, Markup]]:
    """Yield (title, picture) of each curve that a run has, the runs laid over each other."""
    kinds = {name: kind for (name, _), kind in zip(runs, _CURVE_KINDS, strict=False)}
    for split in ("validation", "train"):
        names = {name for _, curves in runs for name in curves.get(split, {})}
        for name in _ordered(names):
            series = {
                run: _points(curves[split][name], name)
                for run, curves in runs
                if name in curves.get(split, {})
            }
            title = f"{_words(name)}, {split}"
            picture = curves_svg(series, f"{title} by step", kinds=kinds, across="step")
            if picture:
                yield title, picture


def curve_kind(index: int) -> str:
    """Return the class of the curve of the run at this place of a comparison."""
    return _CURVE_KINDS[index % MOST_CURVES]


def latest(curves: Curves) -> Mapping[str, float]:
    """Return the latest main figures: step, loss, learning rate, images a second."""
    train = curves.get("train", {})
    found: dict[str, float] = {}
    for name in ("step_loss", "loss", "learning_rate", "images_per_second", "input_wait_fraction"):
        if train.get(name):
            found[name] = train[name][-1].value
            found["step"] = max(found.get("step", 0), train[name][-1].step)
    return found


def _points(points: Sequence[Point], name: str) -> list[tuple[float, float]]:
    factor = _GIB if name.endswith("_bytes") else 1.0
    return [(point.step, point.value * factor) for point in points]


def _ordered(names: set[str]) -> list[str]:
    order = [*_FIRST, *_OF_STEPS]
    return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))


def _words(name: str) -> str:
    if name in FIGURES:
        return FIGURES[name].words
    if name in _OF_STEPS:
        return _OF_STEPS[name]
    return name.removesuffix("_bytes").replace("_", " ") + (" (GiB)" if name.endswith("_bytes") else "")
