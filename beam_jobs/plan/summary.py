"""Parts of a plan that the manifest holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardmill.infra.format.contract import LabelConflict, Leaks, SplitStatistics
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import LabelKind


@dataclass(frozen=True)
class PlanSummary:
    """Parts of a plan that the manifest holds.

    Attributes:
        classes: names by label: first the classes of the previous version, then new ones, sorted.
        label_conflicts: the same bytes under several labels.
        cross_split_duplicates: duplicates that the source gives another split than the record kept.
        leaks: groups that are divided among splits.
        statistics: split -> figures of its images, inherited ones among them.
        features: further features of the records.
        label_kind: the labels of the records.
    """

    classes: list[str]
    label_conflicts: list[LabelConflict]
    cross_split_duplicates: int
    leaks: Leaks
    statistics: dict[str, SplitStatistics]
    features: list[Feature] = field(default_factory=list)
    label_kind: LabelKind = "class"
