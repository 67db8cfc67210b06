"""Figures of the images of each split, from the manifest."""

from __future__ import annotations

from dataclasses import dataclass

from shardmill.infra.format.contract import ChannelStatistics, Manifest, SplitStatistics
from shardmill.infra.html.formatting import pixels, ratio
from shardmill.infra.readable import readable_bytes

_CHANNELS = {1: ("grey",), 3: ("red", "green", "blue")}


@dataclass(frozen=True, slots=True)
class Channel:
    """Mean and standard deviation of a channel (0 to 255), drawn as a band around the mean."""

    name: str
    mean: float
    std: float

    @property
    def start(self) -> float:
        """Left edge of the band."""
        return max(0.0, self.mean - self.std)

    @property
    def width(self) -> float:
        """Width of the band."""
        return min(255.0, self.mean + self.std) - self.start


@dataclass(frozen=True, slots=True)
class SplitFigures:
    """Figures of one split.

    Attributes:
        channels: mean and deviation of each channel.
        colour: mean colour as ``#rrggbb``.
        ranges: rows of (name, least, median, largest).
    """

    channels: tuple[Channel, ...]
    colour: str
    ranges: tuple[tuple[str, str, str, str], ...]


def split_figures(manifest: Manifest) -> dict[str, SplitFigures]:
    """Return split -> figures, without the splits that have none."""
    found = {split: _figures(statistics) for split, statistics in manifest.statistics.items()}
    return {split: figures for split, figures in found.items() if figures.channels or figures.ranges}


def _figures(statistics: SplitStatistics) -> SplitFigures:
    described = (
        ("height", statistics.height, pixels),
        ("width", statistics.width, pixels),
        ("width ÷ height", statistics.aspect, ratio),
        ("bytes", statistics.stored_bytes, readable_bytes),
    )
    ranges = tuple((name, *map(say, values)) for name, values, say in described if values is not None)
    channels = _channels(statistics.pixels)
    mean = [channel.mean for channel in channels] * (3 if len(channels) == 1 else 1)
    colour = "#" + "".join(f"{min(255, max(0, round(value))):02x}" for value in mean)
    return SplitFigures(channels, colour, ranges)  # type: ignore[arg-type]


def _channels(measured: ChannelStatistics | None) -> tuple[Channel, ...]:
    if measured is None or len(measured.mean) not in _CHANNELS:
        return ()
    names = _CHANNELS[len(measured.mean)]
    return tuple(map(Channel, names, measured.mean, measured.std))
