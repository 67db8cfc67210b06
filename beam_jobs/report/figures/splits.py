"""Figures of the splits: statistics of their images, and how evenly their records lie in shards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from shardmill.infra.format.contract import ChannelStatistics, Manifest, Shard, SplitStatistics
from shardmill.infra.html.page import pixels, ratio
from shardmill.infra.preparation import SampleKind
from shardmill.infra.readable import readable_bytes

_MOST_CHANNELS = 32  # that are shown
_CHANNELS: dict[int, Sequence[str]] = {1: ("grey",), 3: ("red", "green", "blue")}


@dataclass(frozen=True, slots=True)
class Channel:
    """Mean and standard deviation of a channel, drawn as a band around the mean.

    Attributes:
        name: "red", "channel 4" and so on.
        mean: in units of the samples.
        std: in the same units.
        low, high: the ends of the drawing.
    """

    name: str
    mean: float
    std: float
    low: float = 0
    high: float = 255

    @property
    def colour(self) -> str:
        """Class of the style."""
        return "grey" if self.name.startswith("channel") else self.name

    @property
    def centre(self) -> float:
        """Place of the mean: 0 to 1."""
        return (self.mean - self.low) / (self.high - self.low)

    @property
    def start(self) -> float:
        """Left edge of the band: 0 to 1."""
        return max(0.0, self.centre - self.std / (self.high - self.low))

    @property
    def width(self) -> float:
        """Width of the band: 0 to 1."""
        return min(1.0, self.centre + self.std / (self.high - self.low)) - self.start


@dataclass(frozen=True, slots=True)
class SplitFigures:
    """Figures of one split.

    Attributes:
        channels: mean and deviation of each channel.
        unit: the range of the samples, in words.
        colour: mean colour as ``#rrggbb``; "" if channels are no colours.
        ranges: rows of (name, least, median, largest).
    """

    channels: tuple[Channel, ...]
    unit: str
    colour: str
    ranges: tuple[tuple[str, str, str, str], ...]


def split_figures(manifest: Manifest) -> dict[str, SplitFigures]:
    """Return split -> figures, without the splits that have none."""
    samples = manifest.samples
    found = {split: _figures(statistics, samples) for split, statistics in manifest.statistics.items()}
    return {split: figures for split, figures in found.items() if figures.channels or figures.ranges}


def _figures(statistics: SplitStatistics, samples: SampleKind) -> SplitFigures:
    described = (
        ("height", statistics.height, pixels),
        ("width", statistics.width, pixels),
        ("width ÷ height", statistics.aspect, ratio),
        ("bytes", statistics.stored_bytes, readable_bytes),
    )
    ranges = tuple((name, *map(say, values)) for name, values, say in described if values is not None)
    channels = _channels(statistics.pixels, samples)
    colour = ""
    if len(channels) in _CHANNELS and samples.white is not None:
        shades = [255 * channel.centre for channel in channels] * (3 if len(channels) == 1 else 1)
        colour = "#" + "".join(f"{min(255, max(0, round(shade))):02x}" for shade in shades)
    unit = "" if samples.white is None else f", 0 to {samples.white:,}"
    return SplitFigures(channels, unit, colour, ranges)  # type: ignore[arg-type]


def _channels(measured: ChannelStatistics | None, samples: SampleKind) -> tuple[Channel, ...]:
    if measured is None or not measured.mean:
        return ()
    numbered = [f"channel {number}" for number in range(1, _MOST_CHANNELS + 1)]
    names = _CHANNELS.get(len(measured.mean), numbered)
    low, high = 0.0, float(samples.white or 0)
    if samples.white is None:
        ends = [
            sign * 2 * std + mean
            for mean, std in zip(measured.mean, measured.std, strict=True)
            for sign in (-1, 1)
        ]
        low, high = min(ends), max(max(ends), min(ends) + 1e-30)
    parts = zip(names, measured.mean, measured.std, strict=False)
    return tuple(Channel(name, mean, std, low, high) for name, mean, std in parts)


SHARD_BARS_SHOWN = 240


@dataclass(frozen=True, slots=True)
class ShardBar:
    """One shard in the plot; the height of its bar is a fraction of the highest."""

    name: str
    num_examples: int
    num_bytes: int
    height: float


@dataclass(frozen=True, slots=True)
class SplitBalance:
    """The shards of one split.

    Attributes:
        num_plans: plans that wrote them; with several, some shards were inherited.
        count_spread: largest difference in records between two shards of one plan.
        class_spread: largest difference in records of one class between two shards of one plan.
        bars: the shards, or evenly spaced ones if there are too many to draw.
    """

    split: str
    num_shards: int
    num_plans: int
    num_examples: int
    num_bytes: int
    fewest: int
    most: int
    count_spread: int
    class_spread: int
    bars: tuple[ShardBar, ...]

    @property
    def is_balanced(self) -> bool:
        """Tell whether shards of one plan differ by at most one record, and by at most one of each class."""
        return self.count_spread <= 1 and self.class_spread <= 1


def shard_balance(manifest: Manifest) -> list[SplitBalance]:
    """Return the balance of each split, in the manifest's order."""
    by_split: dict[str, list[Shard]] = {split: [] for split in manifest.splits}
    for shard in manifest.shards:
        by_split.setdefault(shard.split, []).append(shard)
    if manifest.label_kind != "class":  # only each set of labels is divided evenly, not each label
        by_split = {
            split: [shard.model_copy(update={"class_counts": {}}) for shard in shards]
            for split, shards in by_split.items()
        }
    return [_of_split(split, shards) for split, shards in by_split.items() if shards]


def _of_split(split: str, shards: Sequence[Shard]) -> SplitBalance:
    plans: dict[str, list[Shard]] = defaultdict(list)
    for shard in shards:
        plans[str(PurePosixPath(shard.path).parent)].append(shard)
    counts = [shard.num_examples for shard in shards]
    step = max(1, -(-len(shards) // SHARD_BARS_SHOWN))
    return SplitBalance(
        split=split,
        num_shards=len(shards),
        num_plans=len(plans),
        num_examples=sum(counts),
        num_bytes=sum(shard.num_bytes for shard in shards),
        fewest=min(counts),
        most=max(counts),
        count_spread=max(_spread([shard.num_examples for shard in plan]) for plan in plans.values()),
        class_spread=max(_class_spread(plan) for plan in plans.values()),
        bars=tuple(
            ShardBar(
                PurePosixPath(shard.path).name,
                shard.num_examples,
                shard.num_bytes,
                shard.num_examples / max(counts),
            )
            for shard in shards[::step]
        ),
    )


def _class_spread(shards: Sequence[Shard]) -> int:
    names = {name for shard in shards for name in shard.class_counts}
    return max((_spread([shard.class_counts.get(name, 0) for shard in shards]) for name in names), default=0)


def _spread(values: Sequence[int]) -> int:
    return max(values) - min(values)
