"""Read how evenly the ranks of a run work, and warn where they do not. Imports no TensorFlow."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardmill.infra.errors import CorruptDataError, NotFoundError

BALANCE_FILE = "logs/ranks/balance.jsonl"
# Shares of a step above which a rank's waiting is worth a warning.
_MUCH_WAITING = 0.2
_MUCH_INPUT = 0.2
# Times of fewer steps say little: no warnings by them.
_ENOUGH_STEPS = 20
# Classes differ by chance too: warn from this share of examples on, and from three times the chance on.
_CLASS_SKEW = 0.05
_TIMES_CHANCE = 3.0


@dataclass(frozen=True, slots=True)
class RankRow:
    """The work of one rank in an epoch.

    Attributes:
        rank: its number.
        device: the model of its GPU, or its processors.
        rows: its rows of each global batch.
        share: the same as a part of the global batch.
        examples: real examples of the epoch.
        class_counts: the same by class.
        class_skew: the part of its examples that would have to be of other classes, for it to have the
            classes of all ranks together (total variation distance).
        step_seconds: mean time of a step, the same for all ranks but for small differences.
        input_seconds: the part of it in which the rank waits for its data.
        waiting_seconds: the part of it in which the rank waits for others. If that was not measured, the rest
            of the step besides the measured time of its rows; None: neither was measured.
    """

    rank: int
    device: str
    rows: int
    share: float
    examples: int
    class_counts: tuple[int, ...]
    class_skew: float
    step_seconds: float
    input_seconds: float
    waiting_seconds: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the row without the counts of classes, JSON-able."""
        return {
            "rank": self.rank,
            "device": self.device,
            "rows": self.rows,
            "share": round(self.share, 4),
            "examples": self.examples,
            "class_skew": round(self.class_skew, 4),
            "step_seconds": round(self.step_seconds, 6),
            "input_seconds": round(self.input_seconds, 6),
            "waiting_seconds": None if self.waiting_seconds is None else round(self.waiting_seconds, 6),
        }


@dataclass(frozen=True, slots=True)
class RankBalance:
    """How evenly the ranks worked in the last epoch that ended.

    Attributes:
        epoch: the epoch, from 1.
        classes: the names of the classes.
        ranks: a row for each rank.
        warnings: what is uneven, and what to do about it.
    """

    epoch: int
    classes: tuple[str, ...]
    ranks: tuple[RankRow, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all but the counts of classes, JSON-able."""
        ranks = [row.to_json() for row in self.ranks]
        return {"epoch": self.epoch, "ranks": ranks, "warnings": list(self.warnings)}

    def class_counts(self) -> dict[str, list[int]]:
        """Return the examples of each class, by rank."""
        columns = zip(*(row.class_counts for row in self.ranks), strict=True)
        return {name: list(counts) for name, counts in zip(self.classes, columns, strict=True)}

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the columns and rows of a table for people."""
        columns = ["rank", "device", "rows", "share", "examples", "classes", "class skew"]
        columns += ["step", "input wait", "waits for others"]
        return columns, [_texts(row) for row in self.ranks]


def read_balance(run_dir: Path) -> RankBalance:
    """Read the balance of the last epoch that ended.

    Raises:
        NotFoundError: the run has none. CorruptDataError: its file is damaged.
    """
    path = run_dir / BALANCE_FILE
    if not path.is_file():
        raise NotFoundError(
            f"the run {run_dir.name} has no {BALANCE_FILE}",
            "it is written at the end of each epoch by runs of several ranks (--workers)",
        )
    try:
        return balance_of(json.loads(path.read_text(encoding="utf-8").splitlines()[-1]))
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise CorruptDataError(
            f"{path} cannot be read: {error!r}", "it is written again each epoch"
        ) from error


def balance_of(line: dict[str, Any]) -> RankBalance:
    """Return the balance in a line of the file."""
    found = line["ranks"]
    batch = sum(row["rows"] for row in found)
    together = [sum(counts) for counts in zip(*(row["class_counts"] for row in found), strict=True)]
    rows = tuple(
        RankRow(
            rank=row["rank"],
            device=row["device"],
            rows=row["rows"],
            share=row["rows"] / batch,
            examples=row["examples"],
            class_counts=tuple(row["class_counts"]),
            class_skew=_distance(row["class_counts"], together),
            step_seconds=row["step_seconds"],
            input_seconds=row["input_seconds"],
            waiting_seconds=waiting_seconds(
                row["step_seconds"], row["input_seconds"], row["compute_seconds"], row.get("waited_seconds")
            ),
        )
        for row in found
    )
    warnings = _class_warnings(rows, together)
    if min(row["num_steps"] for row in found) >= _ENOUGH_STEPS:
        warnings = [*_waiting_warnings(rows), *_input_warnings(rows), *warnings]
    return RankBalance(line["epoch"], tuple(line["classes"]), rows, tuple(warnings))


def waiting_seconds(
    step_seconds: float, input_seconds: float, compute_seconds: float | None, waited_seconds: float | None
) -> float | None:
    """Return how long a rank waits for others in a step; None: not measured.

    Args:
        step_seconds: the time of a step.
        input_seconds: the wait for data.
        compute_seconds: the time of the rank's rows as measured alone; None: not measured.
        waited_seconds: the wait for others as measured in the steps; None: not measured.
    """
    if waited_seconds is not None:
        return float(waited_seconds)
    if compute_seconds is None:
        return None
    return max(0.0, float(step_seconds - input_seconds - compute_seconds))


def _distance(counts: Sequence[int], others: Sequence[int]) -> float:
    """Return the total variation distance between two distributions over the classes."""
    own, all_of_them = max(sum(counts), 1), max(sum(others), 1)
    pairs = zip(counts, others, strict=True)
    return sum(abs(count / own - other / all_of_them) for count, other in pairs) / 2


def _waiting_warnings(rows: Sequence[RankRow]) -> list[str]:
    measured = [row for row in rows if row.waiting_seconds is not None and row.step_seconds > 0]
    if len(measured) < 2:
        return []
    waits = {row.rank: (row.waiting_seconds or 0.0) / row.step_seconds for row in measured}
    longest, shortest = max(waits, key=waits.__getitem__), min(waits, key=waits.__getitem__)
    if waits[longest] - waits[shortest] < _MUCH_WAITING:
        return []
    uneven = f"rank {longest} waits {waits[longest]:.0%} of each step for others, rank {shortest} "
    uneven += f"{waits[shortest]:.0%}: the shares do not fit the speed of the ranks"
    return [f"{uneven}; delete logs/ranks/shares.json if it is there, and set ranks.shares to 'measured'"]


def _input_warnings(rows: Sequence[RankRow]) -> list[str]:
    slow = max(rows, key=lambda row: row.input_seconds)
    least = min(row.input_seconds for row in rows)
    if slow.input_seconds - least < _MUCH_INPUT * slow.step_seconds or not slow.step_seconds:
        return []
    part = slow.input_seconds / slow.step_seconds
    late = f"rank {slow.rank} waits {part:.0%} of each step for its data, and all others wait for it"
    return [f"{late}: look at its disk and processors, and at docs/reading-pipelines.md"]


def _class_warnings(rows: Sequence[RankRow], together: Sequence[int]) -> list[str]:
    total = max(sum(together), 1)
    parts = [count / total for count in together]
    warnings = []
    for row in rows:
        spread = sum(math.sqrt(part * (1 - part)) for part in parts) / 2
        chance = spread * math.sqrt(2 / (math.pi * max(row.examples, 1)))
        if row.class_skew > max(_CLASS_SKEW, _TIMES_CHANCE * chance):
            warnings.append(
                f"the classes of rank {row.rank} differ from those of all ranks in {row.class_skew:.0%} of "
                "its examples: set data.granularity to 'record'"
            )
    return warnings


def _texts(row: RankRow) -> list[str]:
    seen = sum(count > 0 for count in row.class_counts)
    waits = "not measured" if row.waiting_seconds is None else _milliseconds(row.waiting_seconds)
    return [
        *(str(row.rank), row.device, str(row.rows), f"{row.share:.1%}", f"{row.examples:,}"),
        *(f"{seen} of {len(row.class_counts)}", f"{row.class_skew:.1%}"),
        *(_milliseconds(row.step_seconds), _milliseconds(row.input_seconds), waits),
    ]


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.1f} ms"
