"""Everything that ``prepare`` lets a user choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from shardmill.beam_jobs.config.image import FilterConfig, ImageConfig
from shardmill.beam_jobs.config.planning import DriftConfig, GroupsConfig, ShardsConfig, SplitsConfig
from shardmill.beam_jobs.config.runner import RunnerConfig
from shardmill.beam_jobs.config.source import SourceConfig
from shardmill.infra.errors import ShardmillError
from shardmill.infra.html.page import differing_settings
from shardmill.infra.settings import STORED, AlsoCalled, Settings


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
        description="Largest fraction of quarantined inputs (0.01 is 1 %) with which a version is published",
    )
    signing_key: str | None = Field(
        None,
        description="File with the private key that signs each published version (needs the extra `signing`)",
    )
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = Field(
        0, description="Seed of splits, shards and their order"
    )

    @model_validator(mode="after")
    def _filters_classes_of_one(self) -> Self:
        if self.filter.classes is not None and self.source.label_kind != "class":
            raise ValueError(
                f"filter.classes keeps the images of some classes, and labels = {self.source.label_kind!r}: "
                "leave it out; source.columns.drop_labels leaves out the rows that have a label"
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
        if not self.image.metadata:  # newer than the digests of earlier releases
            del settings["image"]["metadata"]
        if self.groups.embeddings.file is None:
            del settings["groups"]["embeddings"]
        if self.filter.ai_made == "keep":
            del settings["filter"]["ai_made"]
        if not self.filter.drop_empty_classes:
            del settings["filter"]["drop_empty_classes"]
        return settings
