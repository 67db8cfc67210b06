"""Balance: how evenly the records of a version are distributed over its shards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from shardmill.infra.format.contract import Manifest, Shard

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
