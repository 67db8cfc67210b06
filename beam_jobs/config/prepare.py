"""Everything that ``prepare`` lets a user choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from shardmill.beam_jobs.config.columns import Names
from shardmill.beam_jobs.config.planning import DriftConfig, GroupsConfig, ShardsConfig, SplitsConfig
from shardmill.beam_jobs.config.runner import RunnerConfig
from shardmill.beam_jobs.config.source import SourceConfig
from shardmill.infra.errors import ShardmillError
from shardmill.infra.format.known_features import METADATA_NAMES, QUALITY_FLAGS, MetadataName, QualityFlag
from shardmill.infra.html.page import differing_settings
from shardmill.infra.preparation import Preparation
from shardmill.infra.settings import STORED, AlsoCalled, Settings, WrongValue

_MIB = 1 << 20


def _names_of(value: object, every: tuple[str, ...]) -> object:
    """Return the names in a text with commas, or every name for "all"."""
    if value == "all":
        return every
    return tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value


class ImageConfig(Preparation):
    """The stored form of an image."""

    max_bytes: Annotated[int, Field(ge=1, le=1 << 31)] = Field(
        256 * _MIB,
        description="Larger source files are quarantined as too_large",
    )
    metadata: tuple[MetadataName, ...] = Field(
        (),
        description="What files say of themselves as features of the records: names, or all",
    )

    @field_validator("metadata", mode="before")
    @classmethod
    def _all_or_names(cls, value: object) -> object:
        return _names_of(value, METADATA_NAMES)

    @field_validator("metadata")
    @classmethod
    def _in_order(cls, names: tuple[MetadataName, ...]) -> tuple[MetadataName, ...]:
        return tuple(name for name in METADATA_NAMES if name in names)


# Patterns of files that often lie beside images; case does not matter.
DEFAULT_IGNORE = (
    ".*", "__MACOSX", "@eaDir", "Thumbs.db", "desktop.ini", "LICENSE", "README",
    "*.txt", "*.md", "*.rst", "*.csv", "*.tsv", "*.json", "*.jsonl", "*.xml", "*.yaml", "*.yml", "*.html",
)  # fmt: skip


class FilterConfig(Settings):
    """Inputs to leave out. Each keeps a row in the inputs, with the reason."""

    min_width: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Leave out narrower images (upright pixels)"
    )
    min_height: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Leave out lower images (upright pixels)"
    )
    max_aspect: Annotated[float, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="Leave out images whose longer side is more than this times the shorter"
    )
    ai_made: Literal["keep", "drop"] = Field(
        "keep",
        description="images whose metadata declare a generative model",
    )
    quality: tuple[QualityFlag, ...] = Field(
        (), description="Leave out images with these quality flags: names, or all"
    )
    classes: Annotated[Names, Field(min_length=1)] | None = Field(
        None,
        description="Classes to keep; unset: all",
    )
    drop_empty_classes: bool = Field(
        False,
        description=(
            "Forget classes without a record in the newest version and this one; others change "
            "numbers, and all records are copied"
        ),
    )
    ignore: Names = Field(
        DEFAULT_IGNORE,
        description="Shell patterns of files and folders: of a name, or with a '/' of a path",
    )

    @field_validator("quality", mode="before")
    @classmethod
    def _all_or_flags(cls, value: object) -> object:
        return _names_of(value, tuple(QUALITY_FLAGS))

    @field_validator("quality")
    @classmethod
    def _in_order(cls, names: tuple[QualityFlag, ...]) -> tuple[QualityFlag, ...]:
        return tuple(name for name in QUALITY_FLAGS if name in names)


# All others came later. They are left out of digests at their defaults, so that these stay those of earlier
# releases.
_FIRST_OF_IMAGES = frozenset({
    "size", "height", "width", "resize", "upscale", "resample", "encoding", "quality", "passthrough",
    "channels", "background", "max_bytes", "max_pixels", "allow_truncated",
})  # fmt: skip
_FIRST_FILTERS = frozenset({"min_width", "min_height", "max_aspect", "classes", "ignore"})


class PrepareConfig(Settings):
    """Everything that ``prepare`` lets a user choose."""

    source: SourceConfig = Field(SourceConfig(), description="The source of the images")
    image: ImageConfig = Field(ImageConfig(), description="The stored form of an image")
    filter: FilterConfig = Field(FilterConfig(), description="Inputs to leave out")
    splits: SplitsConfig = Field(SplitsConfig(), description="Fractions of train, validation and test")
    groups: GroupsConfig = Field(GroupsConfig(), description="Groups of images that must stay in one split")
    shards: ShardsConfig = Field(ShardsConfig(), description="The files that hold the records")
    runner: RunnerConfig = Field(RunnerConfig(), description="Execution of the Beam jobs")
    drift: DriftConfig = Field(DriftConfig(), description="Comparison with the version before")
    failure_budget: Annotated[float, Field(ge=0, le=1), AlsoCalled("max_failures", "budget")] = Field(
        0.01,
        description="Largest fraction of quarantined inputs (0.01 is 1 %) in a published version",
    )
    signing_key: str | None = Field(
        None,
        description="File with the private key that signs each version (extra `signing`)",
    )
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = Field(
        0, description="Seed of splits, shards and their order"
    )

    @model_validator(mode="after")
    def _filters_classes_of_one(self) -> Self:
        if self.filter.classes is not None and self.source.label_kind != "class":
            raise WrongValue(
                f"filter.classes keeps the images of some classes, and labels = {self.source.label_kind!r}",
                "leave it out; source.columns.drop_labels leaves out the rows that have a label",
            )
        return self

    def changes_since(self, before: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """Return setting -> its values before and now, of the settings that change the written bytes.

        Args:
            before: the configuration that the manifest of an earlier version has.
        """
        now = self.in_use()
        try:
            then = PrepareConfig.model_validate(before, context=STORED).in_use()
        except (ValidationError, ShardmillError):  # written by a release with other settings
            then = {name: before[name] for name in now if name in before}
        return differing_settings(then, now)

    def in_use(self) -> dict[str, Any]:
        """Return what changes the written bytes: not the runner, the key and what may stop a run."""
        settings = self.model_dump(mode="json", exclude={"runner", "failure_budget", "drift", "signing_key"})
        return settings | {"source": self.source.in_use()}

    def effective(self) -> dict[str, Any]:
        """Return ``in_use`` in the form of earlier releases, which digests are made from."""
        settings = self.in_use() | {"source": self.source.effective()}
        for group, first, plain in (
            ("image", _FIRST_OF_IMAGES, ImageConfig()),
            ("filter", _FIRST_FILTERS, FilterConfig()),
        ):
            defaults = plain.model_dump(mode="json")
            settings[group] = {
                name: value
                for name, value in settings[group].items()
                if name in first or value != defaults[name]
            }
        if self.groups.embeddings.file is None:
            del settings["groups"]["embeddings"]
        return settings
