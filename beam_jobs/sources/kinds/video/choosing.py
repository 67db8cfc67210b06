"""Which frames of a video are images."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shardmill.beam_jobs.sources.kinds.video.packets import Packets
from shardmill.infra.errors import ConfigError
from shardmill.infra.near_names import near_names
from shardmill.infra.settings import Settings, WrongValue

_Number = Annotated[int, Field(ge=0)]
_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Options(Settings):
    """The options of kind video: which frames are images. Only one of them may be given."""

    rate: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] | Literal["all"] | None = Field(
        None, description="Frames a second, or all; unset without the other options: 1"
    )
    scenes: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = Field(
        None,
        description="The first frame, and those whose pixels differ from the frame before by so much of "
        "their range on average, such as 0.1",
    )
    frames: tuple[_Number, ...] | dict[str, tuple[_Number, ...]] | None = Field(
        None, description="Numbers of frames, from 0: of every video, or path -> numbers"
    )
    seconds: tuple[_Seconds, ...] | dict[str, tuple[_Seconds, ...]] | None = Field(
        None, description="Times after the first frame: of every video, or path -> times"
    )

    @model_validator(mode="after")
    def _one_is_given(self) -> Self:
        given = list(self.model_dump(exclude_none=True))
        if len(given) > 1:
            raise WrongValue(f"{' and '.join(given)} each choose the frames", "give one of them")
        return self

    @property
    def unit(self) -> str:
        """The word before the number of a frame in its URI; other scenes are other images."""
        return "frame" if self.scenes is None else f"scenes-{self.scenes:g}"

    def check_names(self, uris: Iterable[str]) -> None:
        """Check that the videos that ``frames`` or ``seconds`` name are there.

        Raises:
            ConfigError: one is not.
        """
        for option in ("frames", "seconds"):
            chosen = getattr(self, option)
            if isinstance(chosen, Mapping):
                known = set(uris)
                for name in sorted(chosen.keys() - known):
                    near = near_names(name, known)
                    raise ConfigError(
                        f"source.options.{option} names {name!r}, and the source has no such video",
                        f"did you mean {near[0]!r}?" if near else "give its path below the source",
                    )


@dataclass(frozen=True)
class Chosen:
    """Frames of a video.

    Attributes:
        numbers: of the frames that are images, from 0; increasing.
        missing: name in the video -> why there is no such frame.
    """

    numbers: list[int]
    missing: dict[str, str]


def choose(uri: str, packets: Packets, options: Options) -> Chosen:
    """Return the frames of a video that the options choose."""
    count = len(packets.stamps)
    if options.scenes is not None or options.rate == "all":
        return Chosen(list(range(count)), {})
    missing = {}
    if options.frames is not None:
        wanted = sorted({int(number) for number in _of(uri, options.frames)})
        for number in wanted:
            if number >= count:
                missing[f"frame={number:07}"] = f"its video has {count:,} frames, numbered from 0"
        return Chosen([number for number in wanted if number < count], missing)
    if options.seconds is not None:
        numbers = set()
        ends = packets.seconds(count - 1) + _last_duration(packets)
        for time in sorted(set(_of(uri, options.seconds))):
            if (exact := Fraction(str(time))) < ends:
                numbers.add(_shown_at(packets, exact))
            else:
                missing[f"seconds={time:g}"] = f"its video ends after {float(ends):g} seconds"
        return Chosen(sorted(numbers), missing)
    return Chosen(_at_rate(packets, Fraction(str(options.rate or 1))), missing)


def _at_rate(packets: Packets, rate: Fraction) -> list[int]:
    """Return the frames that are shown at 0, 1 / rate, 2 / rate, ... seconds, until the last frame begins."""
    step = rate * packets.unit  # samples in a unit of time, which is how exact time stamps are
    begins = [(2 * (stamp - packets.stamps[0]) - 1) * step.numerator for stamp in packets.stamps]
    ends = [*begins[1:], begins[-1] + 2 * step.numerator]
    per_sample = 2 * step.denominator
    return [
        at
        for at, (begin, end) in enumerate(zip(begins, ends, strict=True))
        if -(-begin // per_sample) * per_sample < end
    ]


def _of(uri: str, chosen: Sequence[float] | Mapping[str, Sequence[float]]) -> Sequence[float]:
    return chosen.get(uri, ()) if isinstance(chosen, Mapping) else chosen


def _shown_at(packets: Packets, seconds: Fraction) -> int:
    """Return the frame that is shown at a time; time stamps are rounded to whole units."""
    stamp = packets.stamps[0] + seconds / packets.unit + Fraction(1, 2)
    return bisect_right(packets.stamps, stamp) - 1


def _last_duration(packets: Packets) -> Fraction:
    """Return how long the last frame is shown (seconds): as long as the others on average."""
    count = len(packets.stamps)
    return packets.seconds(count - 1) / (count - 1) if count > 1 else Fraction(1, 25)
