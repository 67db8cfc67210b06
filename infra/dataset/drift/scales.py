"""Properties of images as bins, whose counts add up over shards; and bins as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.dataset.drift.figures import Group
from shardmill.infra.html.page import pixels, ratio
from shardmill.infra.preparation import SampleKind
from shardmill.infra.readable import readable_bytes

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_SMALLEST = 2.0**-20  # magnitudes below count as zero
_OCTAVES = 60
_STEPS = 256  # bins of an octave: values within 0.3 % share one


@dataclass(frozen=True, slots=True)
class Linear:
    """Equal bins from ``low``; values beyond the last bin are put into it."""

    low: float
    width: float
    num_bins: int

    def bins(self, values: Floats) -> Ints:
        """Return the bin of each value."""
        return np.clip(np.floor((values - self.low) / self.width), 0, self.num_bins - 1).astype(np.int64)

    def value(self, number: int) -> float:
        """Return the value in the middle of a bin; of bins of width 1 their whole number."""
        return self.low + (number + (0.0 if self.width == 1 else 0.5)) * self.width


@dataclass(frozen=True, slots=True)
class Logarithmic:
    """Bins of equal ratio for values of either sign, with one for zero."""

    num_bins: int = 2 * _OCTAVES * _STEPS + 1

    def bins(self, values: Floats) -> Ints:
        """Return the bin of each value."""
        with np.errstate(divide="ignore"):
            steps = np.round(np.log2(np.abs(values) / _SMALLEST) * _STEPS)
        steps = np.clip(steps, 0, _OCTAVES * _STEPS)
        found: Ints = (np.sign(values) * steps).astype(np.int64) + self.num_bins // 2
        return found

    def value(self, number: int) -> float:
        """Return the value in the middle of a bin."""
        steps = number - self.num_bins // 2
        return float(np.sign(steps)) * _SMALLEST * 2.0 ** (abs(steps) / _STEPS) if steps else 0.0


@dataclass(frozen=True, slots=True)
class Trait:
    """A property of images that is a number.

    Attributes:
        title: its name for people.
        group: whose limit holds.
        columns: columns of the index, from which it is computed.
        values: the columns as arrays -> float64 [N], NaN where it is not known.
        scale: its bins.
        shown: a value as text.
    """

    title: str
    group: Group
    columns: tuple[str, ...]
    values: Callable[[Mapping[str, Any]], Floats]
    scale: Linear | Logarithmic
    shown: Callable[[float], str]


def _number(value: float) -> str:
    return f"{value:.4g}"


def _level(value: float) -> str:
    return str(round(value))


def _column(name: str) -> Callable[[Mapping[str, Any]], Floats]:
    return lambda columns: columns[name]


def _channels(columns: Mapping[str, Any]) -> Floats:
    means: Floats = columns["pixel_mean"]
    return means


_LENGTHS, _LEVELS, _DIFFERENCES = Linear(0, 1, 1 << 16), Linear(0, 0.25, 1024), Linear(-256, 0.5, 1024)
_SOURCE, _PIXELS = ("source_width", "source_height"), ("pixel_mean",)
TRAITS: Final[Mapping[str, Trait]] = {
    "width": Trait("width of the source", "sizes", _SOURCE[:1], _column(_SOURCE[0]), _LENGTHS, pixels),
    "height": Trait("height of the source", "sizes", _SOURCE[1:], _column(_SOURCE[1]), _LENGTHS, pixels),
    "aspect": Trait(
        "width ÷ height",
        "sizes",
        _SOURCE,
        lambda columns: columns["source_width"] / columns["source_height"],
        Logarithmic(),
        ratio,
    ),
    "bytes": Trait(
        "bytes of the source",
        "sizes",
        ("source_bytes",),
        _column("source_bytes"),
        Logarithmic(),
        readable_bytes,
    ),
    "brightness": Trait(
        "brightness", "colours", _PIXELS, lambda columns: _channels(columns).mean(axis=1), _LEVELS, _level
    ),
    "contrast": Trait(
        "contrast",
        "colours",
        ("pixel_std",),
        lambda columns: columns["pixel_std"].mean(axis=1),
        _LEVELS,
        _level,
    ),
    "red": Trait(
        "red against green",
        "colours",
        _PIXELS,
        lambda columns: _channels(columns)[:, 0] - _channels(columns)[:, 1],
        _DIFFERENCES,
        _level,
    ),
    "blue": Trait(
        "blue against green",
        "colours",
        _PIXELS,
        lambda columns: _channels(columns)[:, 2] - _channels(columns)[:, 1],
        _DIFFERENCES,
        _level,
    ),
}
_OF_SAMPLES: Final = {"pixel_mean", "pixel_std"}
INDEX_COLUMNS: Final = tuple(sorted({name for trait in TRAITS.values() for name in trait.columns}))


def target_trait(name: str) -> Trait:
    """Return the property that is a number to predict."""
    return Trait(f"target {name}", "classes", (), _column(name), Logarithmic(), _number)


def binned(rows: pa.Table, samples: SampleKind) -> dict[str, Ints]:
    """Return the bins of the properties of records: int64 [M] each, of those where the property is known.

    Args:
        rows: rows of an index; properties whose columns it lacks are left out.
        samples: of the images. Shades of 16 bits are counted as those of 8; other samples have no colours.
    """
    columns = {name: _array(rows[name]) for name in INDEX_COLUMNS if name in rows.schema.names}
    for name in _OF_SAMPLES & columns.keys():
        if samples.channels not in (1, 3) or samples.white is None:
            del columns[name]
        else:
            columns[name] /= samples.white / 255
    return {
        name: bins_of(trait, columns)
        for name, trait in TRAITS.items()
        if all(column in columns for column in trait.columns)
    }


def bins_of(trait: Trait, columns: Mapping[str, Any]) -> Ints:
    """Return the bins of a property: int64 [M], of the records where it is known."""
    values = trait.values(columns)
    return trait.scale.bins(values[np.isfinite(values)])


def _array(column: pa.ChunkedArray) -> Floats:
    """Return numbers as float64 [N], lists of one or three channels as float64 [N, 3]; NaN where null."""
    if not pa.types.is_list(column.type):
        return np.asarray(pc.cast(column, pa.float64()).to_numpy(), np.float64)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    found = np.full((len(column), 3), np.nan)
    flat = pc.list_flatten(column).to_numpy()
    starts = np.cumsum(lengths) - lengths
    known = np.flatnonzero(lengths)
    for channel in range(3):  # a grey image has the same value in each
        found[known, channel] = flat[starts[known] + np.minimum(channel, lengths[known] - 1)]
    return found
