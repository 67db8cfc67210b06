"""The limits for drift between two versions, and the compared properties, for people and for JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from shardmill.infra.settings import Settings

Group = Literal["classes", "sizes", "colours", "looks", "duplicates", "quarantine"]
Limit = Annotated[float, Field(ge=0, le=1)]


class DriftLimits(Settings):
    """The largest distance of each group of figures: 0 for the same, 1 for nothing in common."""

    classes: Limit = Field(
        0.3,
        description="Shares of the classes, or the targets",
    )
    sizes: Limit = Field(0.4, description="Width, height, shape and bytes of the source files")
    colours: Limit = Field(0.25, description="Brightness, contrast and colours")
    looks: Limit = Field(0.1, description="Coarse structure: shares of the bits of the perceptual hash")
    duplicates: Limit = Field(0.2, description="Rise of the share of duplicates")
    quarantine: Limit = Field(0.05, description="Rise of the share of quarantined inputs")
    whole: Limit = Field(0.5, description="Part of each limit above for the version as a whole")

    def of(self, group: Group, *, whole: bool) -> float:
        """Return the limit of a group, for new images or for whole versions."""
        limit: float = getattr(self, group)
        return limit * self.whole if whole else limit


Scope = Literal["new", "all", "same"]


@dataclass(frozen=True, slots=True)
class DriftFigure:
    """One property, compared between a version and the one before it.

    Attributes:
        group: names the limit, ``drift.<group>``.
        title: the property, for people.
        split: split of the images; None for figures of all inputs.
        scope: "new": the new images against all images of the version before; "all": the whole versions;
            "same": the images of both versions, as other settings store them now, which is no drift.
        distance: 0 to 1; ``shardmill.infra.dataset.drift`` says of what.
        chance: the part of the distance that chance explains.
        limit: the largest distance beyond chance.
        before, after: typical values as text; empty for looks.
        num_before, num_after: number of compared images or inputs.
    """

    group: Group
    title: str
    split: str | None
    scope: Scope
    distance: float
    chance: float
    limit: float
    before: str
    after: str
    num_before: int
    num_after: int

    @property
    def is_exceeded(self) -> bool:
        """Tell whether the distance is beyond the limit, and neither by chance nor by other settings."""
        return self.scope != "same" and self.distance - self.chance > self.limit

    @property
    def subject(self) -> str:
        """The compared property and images, in words that can begin a sentence."""
        noun = "inputs" if self.split is None else f"{self.split} images"
        stored = ", stored by other settings" if self.scope == "same" else ""
        return f"{self.title} of {'the same' if stored else self.scope} {noun}{stored}"

    def __str__(self) -> str:
        change = f": {self.before} before, now {self.after}" if self.before else " differs"
        return f"{self.subject}{change} (distance {self.distance:.2f}, limit {self.limit:.2f})"

    def to_json(self) -> dict[str, Any]:
        """The figure as values that JSON can hold."""
        rounded = {name: round(getattr(self, name), 4) for name in ("distance", "chance", "limit")}
        return asdict(self) | rounded | {"exceeded": self.is_exceeded}


@dataclass(frozen=True, slots=True)
class Drift:
    """The difference between a version and the one before it.

    Attributes:
        before, after: ``name@version``.
        figures: all compared properties.
    """

    before: str
    after: str
    figures: tuple[DriftFigure, ...]

    @property
    def exceeded(self) -> list[DriftFigure]:
        """The figures beyond their limits, the farthest first."""
        beyond = [figure for figure in self.figures if figure.is_exceeded]
        return sorted(beyond, key=lambda figure: figure.limit - figure.distance)

    def farthest(self, count: int) -> list[DriftFigure]:
        """The figures that are nearest to their limits or beyond, without those that do not differ."""
        differing = [figure for figure in self.figures if figure.distance]
        room = {id(figure): figure.limit + figure.chance - figure.distance for figure in differing}
        return sorted(differing, key=lambda figure: (figure.scope == "same", room[id(figure)]))[:count]

    def to_json(self) -> dict[str, Any]:
        """The figures as values that JSON can hold."""
        figures = [figure.to_json() for figure in self.figures]
        return {"before": self.before, "after": self.after, "figures": figures}
